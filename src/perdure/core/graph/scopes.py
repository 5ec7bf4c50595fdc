"""Which variables there may be where, and of which types: what flows along the edges."""

from typing import TypeAlias

from perdure.core.expressions import ExpressionProblem
from perdure.core.graph import model as m
from perdure.core.graph.fields import variables_of
from perdure.core.graph.gaps import ANYTHING
from perdure.core.graph.inference import common, type_of
from perdure.core.graph.model import Type
from perdure.core.graph.survey import NumberedEdge, Survey

Scope: TypeAlias = dict[str, Type]


class Scopes:
    """The scopes before and after each node that a run may come to.

    A variable that only some of the paths to a node set is in its scope: whether it is there is known when it runs.
    What could not be read of the graph may have set variables: these are in the scopes too, of any type.
    """

    def __init__(self, survey: Survey) -> None:
        self._survey = survey
        self.first: Scope = _inputs(survey.graph)
        self.before: dict[str, Scope] = {}
        self.after: dict[str, Scope] = {}
        self.inside: dict[str, Scope] = {}
        """Of an aggregate: the scope at the end of an item's path."""
        ways: dict[str, list[Scope]] = {name: [] for name in survey.names}
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

    def _left(self, edge: m.Edge) -> Scope:
        """What there is behind an edge. A node that failed may have set its variables, or none of them."""
        after = self.after[edge.source]
        return after if edge.on == m.DONE else _joined([self.before[edge.source], after])

    def _may_set_anything(self, node: m.AnyNode) -> bool:
        """Whether a part of the node that could not be read, or a cycle that is not known as one, may do so."""
        is_returned_to = isinstance(node, m.Hook) and node.cycle
        gaps = self._survey.gaps
        return node.name in gaps.setting or (is_returned_to and not gaps.has_all_kinds)

    def _passed(self, node: m.AnyNode) -> Scope:
        scope = dict(self.before[node.name])
        if isinstance(node, m.Assign):
            for name, text in node.set.items():
                scope[name] = known_type(self._survey, text, scope)
            return scope
        if isinstance(node, m.Aggregate):
            self.inside[node.name] = scope
            # What the items set is theirs: behind the aggregate there is the list alone.
            scope = dict(self.before.get(node.of, scope))
            self.before[node.name] = scope
            return {**scope, node.into: "list"}
        if isinstance(node, m.Hook) and node.cycle:
            for cycle in self._survey.of_kind(m.Cycle):
                if cycle.to == node.name:
                    scope |= dict.fromkeys(cycle.input, "any")
        return scope | {name: _kind(node, field) for field, name in variables_of(node)}


def known_type(survey: Survey, text: str, scope: Scope) -> Type:
    """The type of an expression, `any` if it is none."""
    if isinstance(survey.parsed(text), ExpressionProblem):
        return "any"
    return type_of(text, scope)


def _kind(node: m.AnyNode, field: str) -> Type:
    return "int" if isinstance(node, m.Spread) and field == "index" else "any"


def _opened(scope: Scope) -> Scope:
    """The scope behind what may set any variable."""
    return {**dict.fromkeys(scope, "any"), ANYTHING: "any"}


def _set_elsewhere(survey: Survey) -> Scope:
    """What may come to any node along edges, and from nodes, that could not be read."""
    gaps = survey.gaps
    if gaps.has_all_edges:
        return {}
    binding = (edge.edge.bind for edge in survey.edges)
    names = [*survey.setters, *gaps.bound, *(name for name in binding if name is not None)]
    scope: Scope = dict.fromkeys(names, "any")
    is_known = gaps.has_all_nodes and not gaps.setting and ANYTHING not in gaps.bound
    return scope if is_known else _opened(scope)


def _inputs(graph: m.Graph) -> Scope:
    return {
        name: "any" if field.default is None and not field.required else field.type
        for name, field in (graph.input or {}).items()
    }


def _joined(ways: list[Scope]) -> Scope:
    names = dict.fromkeys(name for way in ways for name in way)
    return {name: common(way[name] for way in ways if name in way) for name in names}
