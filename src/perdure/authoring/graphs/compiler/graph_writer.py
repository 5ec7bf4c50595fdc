"""Collects the nodes and edges of a graph during compilation."""

import ast
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import msgspec

from perdure.core.graph import model as m


class OpenEnd(NamedTuple):
    """An edge without a target. `order` is the order in which a node's edges are evaluated."""

    order: int
    source: str
    on: str = m.DONE
    when: str | None = None
    errors: tuple[str, ...] = ()
    bind: str | None = None


class Handler:
    """An error handler: its exception types (any, if empty), and the open edges that lead to it."""

    def __init__(self, types: tuple[str, ...], bind: str | None) -> None:
        self.types = types
        self.bind = bind
        self.edges: list[OpenEnd] = []


class GraphWriter:
    """Writes nodes one after another. `open` holds the edges to the next node; if empty, it is unreachable."""

    def __init__(self) -> None:
        self.open: list[OpenEnd] = []
        self.at: ast.AST | None = None
        """The source node that is being compiled."""
        self.places: dict[str, ast.AST] = {}
        """The source of each graph node, and of `node.field` where known."""
        self.joins: dict[str, frozenset[str]] = {}
        """Nodes where parallel paths join, and the variables that these paths set."""
        self._nodes: dict[str, m.AnyNode] = {}
        self._edges: list[tuple[int, m.Edge]] = []
        self._handlers: list[list[Handler]] = []
        self._taken: set[str] = set()
        self._order = 0
        self._last_assign: str | None = None

    @property
    def nodes(self) -> tuple[m.AnyNode, ...]:
        return tuple(self._nodes.values())

    @property
    def edges(self) -> tuple[m.Edge, ...]:
        return tuple(edge for _, edge in sorted(self._edges, key=lambda pair: pair[0]))

    def name(self, wanted: str) -> str:
        """A unique node name, derived from `wanted`."""
        plain = re.sub(r"\W", "_", wanted)
        plain = f"n{plain}" if plain[0].isdigit() else plain
        name, count = plain, 1
        while name in self._taken:
            count += 1
            name = f"{plain}_{count}"
        self._taken.add(name)
        return name

    def add(self, node: m.AnyNode, *, can_fail: bool = True) -> None:
        """Attach all open edges to the node, and continue after it."""
        self.put(node, can_fail=can_fail)
        self.open = [self.open_end(node.name)]

    def put(self, node: m.AnyNode, *, can_fail: bool = True) -> None:
        """Attach all open edges to the node, and leave no open edge."""
        self._last_assign = None
        self._nodes[node.name] = node
        if self.at is not None:
            self.places[node.name] = self.at
        for end in self.open:
            self._attach(end, node.name)
        self.open = []
        if can_fail:
            self._guard(node.name)

    def assign(self, maps: m.Maps, wanted: str, *, can_fail: bool = True) -> None:
        """Set variables. Outside of `try`, consecutive assignments share one node."""
        last = self._nodes.get(self._last_assign or "")
        if (
            isinstance(last, m.AssignNode)
            and not self._handlers
            and not maps.keys() & last.set.keys()
        ):
            if [end.source for end in self.open] == [last.name]:
                self._nodes[last.name] = msgspec.structs.replace(last, set={**last.set, **maps})
                self._place_sets(last.name, maps)
                return
        node = m.AssignNode(name=self.name(wanted), set=maps)
        self.add(node, can_fail=can_fail)
        self._place_sets(node.name, maps)
        if not self._handlers:
            self._last_assign = node.name

    def _place_sets(self, name: str, maps: m.Maps) -> None:
        if self.at is not None:
            self.places.update(dict.fromkeys((f"{name}.set.{each}" for each in maps), self.at))

    def branch(self, test: str, *, can_fail: bool = True) -> tuple[list[OpenEnd], list[OpenEnd]]:
        """The open edges for the test being true, and for it being false."""
        node = m.BranchNode(name=self.name("if"))
        self.put(node, can_fail=can_fail)
        return [self.open_end(node.name, when=test)], [self.open_end(node.name)]

    def wrote(self, name: str, at: ast.AST, fields: Mapping[str, ast.AST]) -> None:
        """Record the source `at` of the next node, which has that name, and the source of its fields."""
        self.at = at
        self.places.update({f"{name}.{field}": each for field, each in fields.items()})

    def open_end(self, source: str, *, on: str = m.DONE, when: str | None = None) -> OpenEnd:
        self._order += 1
        return OpenEnd(self._order, source, on, when)

    def caught(self, source: str, bind: str) -> OpenEnd:
        """The open edge for all errors of `source`."""
        return self.open_end(source, on=m.ERROR)._replace(bind=bind)

    def fork(self, count: int) -> list[list[OpenEnd]]:
        """The open edges, `count` times, for parallel paths."""
        only = self.open[0] if len(self.open) == 1 else None
        is_plain = only is not None and only.on == m.DONE
        if not is_plain or isinstance(self._nodes[self.open[0].source], m.BranchNode):
            self.add(m.AssignNode(name=self.name("fork"), set={}), can_fail=False)
        self._last_assign = None
        source = self.open[0].source
        return [[self.open_end(source)] for _ in range(count)]

    @property
    def is_handled(self) -> bool:
        """Whether a handler receives errors of the next node."""
        return any(self._handlers)

    @contextmanager
    def handled_by(self, handlers: list[Handler]) -> Iterator[None]:
        """Inside this context errors go to the first matching handler, before those of enclosing `try` statements."""
        self._handlers.append(handlers)
        yield
        self._handlers.pop()

    def _guard(self, name: str) -> None:
        """Add edges from the node to its handlers. An inner handler of a type hides outer ones."""
        taken: set[str] = set()
        for handler in (each for handlers in reversed(self._handlers) for each in handlers):
            types = tuple(each for each in handler.types if each not in taken)
            if types or not handler.types:
                end = self.open_end(name, on=m.ERROR)
                handler.edges.append(end._replace(errors=types, bind=handler.bind))
            if not handler.types:
                return
            taken.update(types)

    def _attach(self, end: OpenEnd, target: str) -> None:
        edge = m.Edge(end.source, target, end.on, end.when, end.errors, end.bind)
        self._edges.append((end.order, edge))
