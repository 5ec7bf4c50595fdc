"""Which variables may exist at each node, and their types, by following the edges."""

from typing import TypeAlias

from perdure.core.expressions import ExpressionProblem
from perdure.core.graph import model as m
from perdure.core.graph.fields import SHADOWED, variables_of
from perdure.core.graph.gaps import ANYTHING
from perdure.core.graph.inference import common, type_of
from perdure.core.graph.model import Type
from perdure.core.graph.survey import NumberedEdge, Survey

TypeScope: TypeAlias = dict[str, Type]


class Scopes:
    """The scopes before and after each reachable node.

    A variable that only some paths to a node set is in its scope: only the run shows whether it exists. Variables that
    unreadable parts of the graph may set are in the scopes too, with type `any`.
    """

    def __init__(self, survey: Survey) -> None:
        self._survey = survey
        self.first: TypeScope = _inputs(survey.graph)
        self.before: dict[str, TypeScope] = {}
        self.after: dict[str, TypeScope] = {}
        self.inside: dict[str, TypeScope] = {}
        """For an aggregate: the scope at the end of an item's path."""
        ways: dict[str, list[TypeScope]] = {name: [] for name in survey.names}
        leaving: dict[str, list[NumberedEdge]] = {name: [] for name in survey.names}
        for numbered in survey.forward:
            leaving[numbered.edge.source].append(numbered)
        elsewhere = _set_elsewhere(survey)
        for name in survey.in_order():
            node = survey.nodes[name]
            self.before[name] = _joined(ways[name] or [self.first]) | elsewhere
            self.after[name] = self._passed(node)
            if self._may_set_anything(node):
                self.after[name] = _opened(self.after[name])
            for numbered in leaving[name]:
                edge, scope = numbered.edge, self._left(numbered.edge)
                if edge.bind is not None:
                    scope = scope | {edge.bind: "dict"}
                if numbered.place in survey.gaps.setting:
                    scope = _opened(scope)
                ways[edge.target].append(scope)

    def _left(self, edge: m.Edge) -> TypeScope:
        """The scope behind an edge. A failed node may have set its variables or not."""
        after = self.after[edge.source]
        return after if edge.on == m.DONE else _joined([self.before[edge.source], after])

    def _may_set_anything(self, node: m.AnyNode) -> bool:
        """Whether an unreadable part of the node, or an unreadable cycle to it, may set any variable."""
        is_returned_to = isinstance(node, m.HookNode) and node.cycle
        gaps = self._survey.gaps
        return node.name in gaps.setting or (is_returned_to and not gaps.has_all_kinds)

    def _passed(self, node: m.AnyNode) -> TypeScope:
        scope = dict(self.before[node.name])
        if isinstance(node, m.AssignNode):
            for name, text in node.set.items():
                scope[name] = known_type(self._survey, text, scope)
            return scope
        if isinstance(node, m.AggregateNode):
            self.inside[node.name] = scope
            # Variables of the items do not exist behind the aggregate; the collected list does.
            scope = dict(self.before.get(node.of, scope))
            self.before[node.name] = scope
            return {**scope, node.into: "list"}
        if isinstance(node, m.HookNode) and node.cycle:
            for cycle in self._survey.of_kind(m.CycleNode):
                if cycle.to == node.name:
                    scope |= dict.fromkeys(cycle.input, "any")
        return scope | {name: _kind(node, field) for field, name in variables_of(node)}


def known_type(survey: Survey, text: str, scope: TypeScope) -> Type:
    """The type of an expression; `any` if the text is invalid."""
    if isinstance(survey.parsed(text), ExpressionProblem):
        return "any"
    return type_of(text, scope)


def _kind(node: m.AnyNode, field: str) -> Type:
    return "int" if isinstance(node, m.SpreadNode) and field == "index" else "any"


def _opened(scope: TypeScope) -> TypeScope:
    """The scope behind a node or edge that may set any variable."""
    return {**dict.fromkeys(scope, "any"), ANYTHING: "any"}


def _set_elsewhere(survey: Survey) -> TypeScope:
    """Variables that may reach any node along unreadable edges or from unreadable nodes."""
    gaps = survey.gaps
    if gaps.has_all_edges:
        return {}
    binding = (edge.edge.bind for edge in survey.edges)
    names = [*survey.setters, *gaps.bound, *(name for name in binding if name is not None)]
    scope: TypeScope = dict.fromkeys(names, "any")
    is_known = gaps.has_all_nodes and not gaps.setting and ANYTHING not in gaps.bound
    return scope if is_known else _opened(scope)


def _inputs(graph: m.Graph) -> TypeScope:
    return {
        name: "any" if field.default is None and not field.required else field.type
        for name, field in (graph.input or {}).items()
        if name not in SHADOWED
    }


def _joined(ways: list[TypeScope]) -> TypeScope:
    names = dict.fromkeys(name for way in ways for name in way)
    return {name: common(way[name] for way in ways if name in way) for name in names}
