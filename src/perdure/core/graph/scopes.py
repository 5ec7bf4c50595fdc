"""Which variables there may be where, and of which types: what flows along the edges."""

from typing import TypeAlias

from perdure.core.expressions import ExpressionProblem
from perdure.core.graph import model as m
from perdure.core.graph.fields import variables_of
from perdure.core.graph.inference import common, type_of
from perdure.core.graph.model import Type
from perdure.core.graph.survey import Survey

Scope: TypeAlias = dict[str, Type]


class Scopes:
    """The scopes before and after each node that a run may come to.

    A variable that only some of the paths to a node set is in its scope: whether it is there is known when it runs.
    """

    def __init__(self, survey: Survey) -> None:
        self._survey = survey
        self.first: Scope = _inputs(survey.graph)
        self.before: dict[str, Scope] = {}
        self.after: dict[str, Scope] = {}
        self.inside: dict[str, Scope] = {}
        """Of an aggregate: the scope at the end of an item's path."""
        ways: dict[str, list[Scope]] = {name: [] for name in survey.names}
        leaving: dict[str, list[m.Edge]] = {name: [] for name in survey.names}
        for numbered in survey.forward:
            leaving[numbered.edge.source].append(numbered.edge)
        for name in survey.in_order():
            node = survey.nodes[name]
            self.before[name] = _joined(ways[name] or [self.first])
            self.after[name] = self._passed(node)
            for edge in leaving[name]:
                bound: Scope = {} if edge.bind is None else {edge.bind: "dict"}
                ways[edge.target].append(self._left(edge) | bound)

    def _left(self, edge: m.Edge) -> Scope:
        """What there is behind an edge. A node that failed may have set its variables, or none of them."""
        after = self.after[edge.source]
        return after if edge.on == m.DONE else _joined([self.before[edge.source], after])

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


def _inputs(graph: m.Graph) -> Scope:
    return {
        name: "any" if field.default is None and not field.required else field.type
        for name, field in (graph.input or {}).items()
    }


def _joined(ways: list[Scope]) -> Scope:
    names = dict.fromkeys(name for way in ways for name in way)
    return {name: common(way[name] for way in ways if name in way) for name in names}
