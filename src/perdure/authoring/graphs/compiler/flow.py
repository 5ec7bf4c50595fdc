"""Data flow: which variables a node may read, and which variables a loop passes to its next iteration."""

import ast
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from perdure.authoring.graphs.compiler.graph_writer import GraphWriter
from perdure.authoring.graphs.compiler.loop_planes import Planes
from perdure.authoring.graphs.compiler.names import Names
from perdure.authoring.graphs.compiler.problems import Problems
from perdure.core.expressions import ExpressionProblem, parse
from perdure.core.graph import model as m
from perdure.core.graph.fields import OWN, expressions_of, variables_of
from perdure.core.graph.reaching import reached

_ALWAYS = {"input", "job"}

VariableNames = frozenset[str]


@dataclass(frozen=True)
class FlowEdge:
    """An edge and the variables that it sets."""

    source: str
    target: str
    sets: VariableNames


class Flow:
    """The variables of a graph, propagated along its edges and cycles to a fixed point."""

    def __init__(self, planes: Planes, writer: GraphWriter, inputs: Iterable[str]) -> None:
        self._planes = planes
        self._joins = writer.joins
        self._places = writer.places
        self._reads = {name: _reads(node) for name, node in planes.nodes.items()}
        self._writes = {name: _writes(node) for name, node in planes.nodes.items()}
        for edge in planes.edges:
            if edge.when is not None:
                self._reads[edge.source] |= _names(edge.when)
        for node in planes.nodes.values():
            if isinstance(node, m.TriggerNode):
                self._writes[node.name] = frozenset(inputs)
        self._edges = [
            self._flow_edge(edge) for edge in planes.edges if edge not in planes.resuming
        ]
        self._edges += [
            FlowEdge(cycle, entry, frozenset()) for cycle, entry in planes.resume_nodes.items()
        ]
        self._may = self._forward(every=False)
        self._must = self._forward(every=True)
        self._live = self._backward()

    def report_unset(self, names: Names, problems: Problems) -> None:
        """Report variables that are read where no path has set them."""
        for name, reads in self._reads.items():
            for variable in sorted(reads - self._may[name] - _ALWAYS):
                users = names.source_name(variable)
                problems.add(
                    self._place(name, variable),
                    f"the variable {users!r} is read where nothing has set it",
                    "assign it before",
                )

    def close_loops(self, names: Names, problems: Problems) -> None:
        """Let each cycle pass on the variables that are read later and may have changed since its hook."""
        for cycle, entry in self._planes.resume_nodes.items():
            node = self._planes.nodes[cycle]
            assert isinstance(node, m.CycleNode)  # noqa: S101 - for the type checker
            changed = self._changed_since(node.to)
            wanted = [each for each in changed if each in self._live[entry] & self._may[cycle]]
            for variable in wanted:
                if variable not in self._must[cycle]:
                    users = names.source_name(variable)
                    problems.add(
                        self._loop(node),
                        f"the variable {users!r} may have no value when this loop repeats",
                        "assign it before the loop",
                    )
            taken = {**node.input, **{each: each for each in wanted}}
            self._planes.nodes[cycle] = msgspec.structs.replace(node, input=taken)

    def _place(self, name: str, variable: str) -> ast.AST:
        """The source position where a node reads a variable."""
        for reading in expressions_of(self._planes.nodes[name]):
            place = self._places.get(f"{name}.{reading.field}")
            if place is not None and variable in _names(reading.text):
                return place
        return self._places[name]

    def _loop(self, node: m.CycleNode) -> ast.AST:
        return self._places.get(node.to, self._places[node.name])

    def _flow_edge(self, edge: m.Edge) -> FlowEdge:
        sets = self._writes[edge.source] if edge.on == m.DONE else frozenset()
        sets |= self._joins.get(edge.target, frozenset())
        return FlowEdge(edge.source, edge.target, sets | ({edge.bind} if edge.bind else set()))

    def _changed_since(self, hook: str) -> list[str]:
        """The variables that an iteration may set between the hook and a cycle that returns to it, in node order."""
        edges = [edge for edge in self._edges if edge.target != hook]
        cycles = [
            node.name
            for node in self._planes.nodes.values()
            if isinstance(node, m.CycleNode) and node.to == hook
        ]
        inside = _reach([hook], [(edge.source, edge.target) for edge in edges])
        inside &= _reach(cycles, [(edge.target, edge.source) for edge in edges])
        found = [edge for edge in edges if edge.source in inside and edge.target in inside]
        order = {name: number for number, name in enumerate(self._planes.nodes)}
        found.sort(key=lambda edge: order[edge.source])
        variables = dict.fromkeys(each for edge in found for each in sorted(edge.sets))
        return [each for each in variables if each != self._planes.variable]

    def _forward(self, *, every: bool) -> dict[str, VariableNames]:
        """The variables set before each node: on every path to it, or on any."""
        everything = frozenset().union(*self._writes.values(), *(edge.sets for edge in self._edges))
        incoming: dict[str, list[FlowEdge]] = {name: [] for name in self._planes.nodes}
        for edge in self._edges:
            incoming[edge.target].append(edge)
        found = dict.fromkeys(self._planes.nodes, everything if every else frozenset())
        join = frozenset.intersection if every else frozenset.union
        is_changed = True
        while is_changed:
            is_changed = False
            for name, edges in incoming.items():
                given = [found[edge.source] | edge.sets for edge in edges]
                new = join(*given) if given else frozenset()
                is_changed = is_changed or new != found[name]
                found[name] = new
        return found

    def _backward(self) -> dict[str, VariableNames]:
        """The variables that each node or a later one reads before they are set again."""
        found: dict[str, VariableNames] = dict.fromkeys(self._planes.nodes, frozenset())
        is_changed = True
        while is_changed:
            is_changed = False
            for edge in reversed(self._edges):
                new = (
                    found[edge.source] | self._reads[edge.source] | (found[edge.target] - edge.sets)
                )
                new |= self._reads[edge.target] - edge.sets
                is_changed = is_changed or new != found[edge.source]
                found[edge.source] = new
        return {name: live | self._reads[name] for name, live in found.items()}


def _reach(starts: list[str], pairs: list[tuple[str, str]]) -> set[str]:
    """The nodes reachable along the pairs, including the starts."""
    return reached(starts, lambda here: (target for source, target in pairs if source == here))


def _names(text: str) -> VariableNames:
    try:
        return parse(text).names
    except ExpressionProblem:  # reported already
        return frozenset()


def _reads(node: m.AnyNode) -> VariableNames:
    found: set[str] = set()
    known: set[str] = set()
    for reading in expressions_of(node):
        found |= _names(reading.text) - (set(OWN) if reading.is_after else set()) - known
        if isinstance(node, m.AssignNode):
            known.add(reading.field.partition(".")[2])
    if isinstance(node, m.RaiseNode) and node.again is not None:
        found.add(node.again)
    return frozenset(found)


def _writes(node: m.AnyNode) -> VariableNames:
    return frozenset(name for _, name in variables_of(node))
