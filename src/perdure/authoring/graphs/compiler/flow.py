"""What flows where: which variables a node may read, and what a loop takes along to its next turn."""

import ast
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from perdure.authoring.graphs.compiler.drawing import Drawing
from perdure.authoring.graphs.compiler.names import Names
from perdure.authoring.graphs.compiler.planes import Planes
from perdure.authoring.graphs.compiler.problems import Problems
from perdure.core.expressions import ExpressionProblem, parse
from perdure.core.graph import model as m
from perdure.core.graph.fields import OWN, expressions_of, variables_of
from perdure.core.graph.reaching import reached

_ALWAYS = {"input", "job"}

Variables = frozenset[str]


@dataclass(frozen=True)
class Way:
    """From a node to another: what is set on it."""

    source: str
    target: str
    sets: Variables


class Flow:
    """The variables of a graph, followed along its edges and back by its cycles, until nothing changes."""

    def __init__(self, planes: Planes, drawing: Drawing, inputs: Iterable[str]) -> None:
        self._planes = planes
        self._joins = drawing.joins
        self._places = drawing.places
        self._reads = {name: _reads(node) for name, node in planes.nodes.items()}
        self._writes = {name: _writes(node) for name, node in planes.nodes.items()}
        for edge in planes.edges:
            if edge.when is not None:
                self._reads[edge.source] |= _names(edge.when)
        for node in planes.nodes.values():
            if isinstance(node, m.Trigger):
                self._writes[node.name] = frozenset(inputs)
        self._ways = [self._way(edge) for edge in planes.edges if edge not in planes.resuming]
        self._ways += [Way(cycle, entry, frozenset()) for cycle, entry in planes.turns.items()]
        self._may = self._forward(every=False)
        self._must = self._forward(every=True)
        self._live = self._backward()

    def report_unset(self, names: Names, problems: Problems) -> None:
        """Variables that are read where no path has set them."""
        for name, reads in self._reads.items():
            for variable in sorted(reads - self._may[name] - _ALWAYS):
                users = names.users(variable)
                problems.add(
                    self._place(name, variable),
                    f"the variable {users!r} is read where nothing has set it",
                    "assign it before",
                )

    def close_loops(self, names: Names, problems: Problems) -> None:
        """Let each cycle take along what is read later and may be other than when its hook was first passed."""
        for cycle, entry in self._planes.turns.items():
            node = self._planes.nodes[cycle]
            assert isinstance(node, m.Cycle)  # noqa: S101 - for the type checker
            changed = self._changed_since(node.to)
            wanted = [each for each in changed if each in self._live[entry] & self._may[cycle]]
            for variable in wanted:
                if variable not in self._must[cycle]:
                    users = names.users(variable)
                    problems.add(
                        self._loop(node),
                        f"the variable {users!r} may have no value when this loop goes on",
                        "assign it before the loop",
                    )
            taken = {**node.input, **{each: each for each in wanted}}
            self._planes.nodes[cycle] = msgspec.structs.replace(node, input=taken)

    def _place(self, name: str, variable: str) -> ast.AST:
        """Where a node reads a variable."""
        for reading in expressions_of(self._planes.nodes[name]):
            place = self._places.get(f"{name}.{reading.field}")
            if place is not None and variable in _names(reading.text):
                return place
        return self._places[name]

    def _loop(self, node: m.Cycle) -> ast.AST:
        return self._places.get(node.to, self._places[node.name])

    def _way(self, edge: m.Edge) -> Way:
        sets = self._writes[edge.source] if edge.on == m.DONE else frozenset()
        sets |= self._joins.get(edge.target, frozenset())
        return Way(edge.source, edge.target, sets | ({edge.bind} if edge.bind else set()))

    def _changed_since(self, hook: str) -> list[str]:
        """The variables that any turn sets, on a way from the hook to a cycle that returns to it, in the order of the
        nodes."""
        ways = [way for way in self._ways if way.target != hook]
        cycles = [
            node.name
            for node in self._planes.nodes.values()
            if isinstance(node, m.Cycle) and node.to == hook
        ]
        inside = _reach([hook], [(way.source, way.target) for way in ways])
        inside &= _reach(cycles, [(way.target, way.source) for way in ways])
        found = [way for way in ways if way.source in inside and way.target in inside]
        order = {name: number for number, name in enumerate(self._planes.nodes)}
        found.sort(key=lambda way: order[way.source])
        variables = dict.fromkeys(each for way in found for each in sorted(way.sets))
        return [each for each in variables if each != self._planes.variable]

    def _forward(self, *, every: bool) -> dict[str, Variables]:
        """What is set before each node: on every way there, or on any."""
        everything = frozenset().union(*self._writes.values(), *(way.sets for way in self._ways))
        incoming: dict[str, list[Way]] = {name: [] for name in self._planes.nodes}
        for way in self._ways:
            incoming[way.target].append(way)
        found = dict.fromkeys(self._planes.nodes, everything if every else frozenset())
        join = frozenset.intersection if every else frozenset.union
        is_changed = True
        while is_changed:
            is_changed = False
            for name, ways in incoming.items():
                given = [found[way.source] | way.sets for way in ways]
                new = join(*given) if given else frozenset()
                is_changed = is_changed or new != found[name]
                found[name] = new
        return found

    def _backward(self) -> dict[str, Variables]:
        """What is read from each node on, before it is set."""
        found: dict[str, Variables] = dict.fromkeys(self._planes.nodes, frozenset())
        is_changed = True
        while is_changed:
            is_changed = False
            for way in reversed(self._ways):
                new = found[way.source] | self._reads[way.source] | (found[way.target] - way.sets)
                new |= self._reads[way.target] - way.sets
                is_changed = is_changed or new != found[way.source]
                found[way.source] = new
        return {name: live | self._reads[name] for name, live in found.items()}


def _reach(starts: list[str], pairs: list[tuple[str, str]]) -> set[str]:
    """What pairs lead to, and where they start."""
    return reached(starts, lambda here: (target for source, target in pairs if source == here))


def _names(text: str) -> Variables:
    try:
        return parse(text).names
    except ExpressionProblem:  # has been told
        return frozenset()


def _reads(node: m.AnyNode) -> Variables:
    found: set[str] = set()
    known: set[str] = set()
    for reading in expressions_of(node):
        found |= _names(reading.text) - (set(OWN) if reading.is_after else set()) - known
        if isinstance(node, m.Assign):
            known.add(reading.field.partition(".")[2])
    if isinstance(node, m.Raise) and node.again is not None:
        found.add(node.again)
    return frozenset(found)


def _writes(node: m.AnyNode) -> Variables:
    return frozenset(name for _, name in variables_of(node))
