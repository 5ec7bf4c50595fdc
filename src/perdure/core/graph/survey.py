"""An indexed view of a graph, valid or not, for the rules."""

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import NamedTuple, TypeVar

from perdure.core.expressions import Expression, ExpressionProblem, parse
from perdure.core.graph import model as m
from perdure.core.graph.fields import variables_of
from perdure.core.graph.gaps import NO_GAPS, Gaps
from perdure.core.graph.reaching import reached
from perdure.core.graph.shape import Shape
from perdure.core.graph.starting import beginnings

N = TypeVar("N", bound=m.Node)


class NumberedEdge(NamedTuple):
    """An edge and its number in the graph, by which problems name it."""

    number: int
    edge: m.Edge

    @property
    def place(self) -> str:
        return f"edge {self.number}"


class Survey:
    """A graph with its nodes by name, the edges that lead somewhere, and its shape.

    Of several nodes with one name the first counts. Edges from or to unknown nodes are left out. The shape has neither
    edges that close a cycle nor unreachable nodes, so that each fault is reported once.
    """

    def __init__(self, graph: m.Graph, gaps: Gaps = NO_GAPS) -> None:
        self.graph = graph
        self.gaps = gaps
        self.nodes: dict[str, m.AnyNode] = {}
        for node in graph.nodes:
            self.nodes.setdefault(node.name, node)
        self.names = tuple(self.nodes)
        self.number = {name: index for index, name in enumerate(self.names)}
        self.edges = tuple(
            NumberedEdge(number, edge)
            for number, edge in enumerate(graph.edges)
            if edge.source in self.nodes and edge.target in self.nodes
        )
        self.outgoing: dict[str, list[NumberedEdge]] = {name: [] for name in self.names}
        self.incoming: dict[str, list[NumberedEdge]] = {name: [] for name in self.names}
        for edge in self.edges:
            self.outgoing[edge.edge.source].append(edge)
            self.incoming[edge.edge.target].append(edge)
        self._parsed: dict[str, Expression | ExpressionProblem] = {}

    def of_kind(self, kind: type[N]) -> Iterator[N]:
        return (node for node in self.nodes.values() if isinstance(node, kind))

    @cached_property
    def beginnings(self) -> tuple[str, ...]:
        """The triggers, or the start nodes if there are none."""
        triggers = tuple(node.name for node in self.of_kind(m.TriggerNode))
        return triggers or beginnings(self.graph)

    @cached_property
    def reached(self) -> frozenset[str]:
        """Nodes that a run may reach."""
        return self.reach(self.beginnings)

    def reach(self, names: Iterable[str], without: str | None = None) -> frozenset[str]:
        """`names`, and all nodes reachable from them without passing `without`."""

        def after(name: str) -> Iterator[str]:
            targets = (numbered.edge.target for numbered in self.outgoing[name])
            return (target for target in targets if target != without)

        return frozenset(reached((name for name in names if name != without), after))

    @cached_property
    def returning(self) -> tuple[NumberedEdge, ...]:
        """Edges that close a cycle."""
        found = []
        done: set[str] = set()
        for start in (*self.beginnings, *self.names):
            if start in done:
                continue
            open_names = {start}
            stack = [(start, iter(self.outgoing[start]))]
            while stack:
                name, edges = stack[-1]
                edge = next(edges, None)
                if edge is None:
                    stack.pop()
                    open_names.discard(name)
                    done.add(name)
                elif edge.edge.target in open_names:
                    found.append(edge)
                elif edge.edge.target not in done:
                    open_names.add(edge.edge.target)
                    stack.append((edge.edge.target, iter(self.outgoing[edge.edge.target])))
        return tuple(sorted(found))

    @cached_property
    def forward(self) -> tuple[NumberedEdge, ...]:
        """The edges of the shape."""
        back = set(self.returning)
        return tuple(e for e in self.edges if e.edge.source in self.reached and e not in back)

    @cached_property
    def shape(self) -> Shape:
        pairs = [(self.number[e.edge.source], self.number[e.edge.target]) for e in self.forward]
        return Shape(len(self.names), pairs)

    def in_order(self) -> Iterator[str]:
        """The reachable nodes in topological order."""
        names = (self.names[index] for index in self.shape.order)
        return (name for name in names if name in self.reached)

    def is_before(self, one: str, other: str) -> bool:
        """Whether a path leads from one to the other."""
        return self.number[one] in self.shape.ancestors(self.number[other])

    @cached_property
    def setters(self) -> dict[str, list[str]]:
        """By variable: the nodes that set it."""
        found: dict[str, list[str]] = {}
        for node in self.nodes.values():
            for _, variable in variables_of(node):
                found.setdefault(variable, []).append(node.name)
        return found

    def before(self, name: str) -> tuple[str, ...]:
        """Its direct predecessors, each once."""
        indices = dict.fromkeys(self.shape.before[self.number[name]])
        return tuple(self.names[index] for index in indices)

    def parsed(self, text: str) -> Expression | ExpressionProblem:
        """The expression, or what is wrong with it."""
        found = self._parsed.get(text)
        if found is None:
            try:
                found = parse(text)
            except ExpressionProblem as problem:
                found = problem
            self._parsed[text] = found
        return found

    def reads(self, text: str) -> frozenset[str]:
        """The variables that an expression reads; none if the text is invalid."""
        found = self.parsed(text)
        return frozenset() if isinstance(found, ExpressionProblem) else frozenset(found.names)
