"""The graph while it is drawn: nodes, and the beginnings of edges that wait for the node that comes next."""

import ast
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import msgspec

from perdure.core.graph import model as m


class Stub(NamedTuple):
    """The beginning of an edge. A node's edges are judged in the order in which they were begun."""

    order: int
    source: str
    on: str = m.DONE
    when: str | None = None
    errors: tuple[str, ...] = ()
    bind: str | None = None


class Handler:
    """Who takes errors of some types, or of any if there are no `types`; and the edges that lead there."""

    def __init__(self, types: tuple[str, ...], bind: str | None) -> None:
        self.types = types
        self.bind = bind
        self.stubs: list[Stub] = []


class Drawing:
    """`open` are the stubs that lead to the next node; if there are none, nothing gets there."""

    def __init__(self) -> None:
        self.open: list[Stub] = []
        self.at: ast.AST | None = None
        """What is compiled now."""
        self.places: dict[str, ast.AST] = {}
        """What was compiled to a node, and to `node.field` where that is known."""
        self.joins: dict[str, frozenset[str]] = {}
        """Nodes where all of several paths meet, and the variables that these have set together."""
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
        """A name that no other node has, made of the one that is wanted."""
        plain = re.sub(r"\W", "_", wanted)
        plain = f"n{plain}" if plain[0].isdigit() else plain
        name, count = plain, 1
        while name in self._taken:
            count += 1
            name = f"{plain}_{count}"
        self._taken.add(name)
        return name

    def add(self, node: m.AnyNode, *, can_fail: bool = True) -> None:
        """Put the node at the end of all that is open; what comes next follows it."""
        self.put(node, can_fail=can_fail)
        self.open = [self.stub(node.name)]

    def put(self, node: m.AnyNode, *, can_fail: bool = True) -> None:
        """The same, but nothing follows it yet."""
        self._last_assign = None
        self._nodes[node.name] = node
        if self.at is not None:
            self.places[node.name] = self.at
        for stub in self.open:
            self._attach(stub, node.name)
        self.open = []
        if can_fail:
            self._guard(node.name)

    def assign(self, maps: m.Maps, wanted: str, *, can_fail: bool = True) -> None:
        """Set variables. Outside of `try`, assignments in a row are one node."""
        last = self._nodes.get(self._last_assign or "")
        if isinstance(last, m.Assign) and not self._handlers and not maps.keys() & last.set.keys():
            if [stub.source for stub in self.open] == [last.name]:
                self._nodes[last.name] = msgspec.structs.replace(last, set={**last.set, **maps})
                self._place_sets(last.name, maps)
                return
        node = m.Assign(name=self.name(wanted), set=maps)
        self.add(node, can_fail=can_fail)
        self._place_sets(node.name, maps)
        if not self._handlers:
            self._last_assign = node.name

    def _place_sets(self, name: str, maps: m.Maps) -> None:
        if self.at is not None:
            self.places.update(dict.fromkeys((f"{name}.set.{each}" for each in maps), self.at))

    def branch(self, test: str, *, can_fail: bool = True) -> tuple[list[Stub], list[Stub]]:
        """Two ways: where the test holds, and where it does not."""
        node = m.Branch(name=self.name("if"))
        self.put(node, can_fail=can_fail)
        return [self.stub(node.name, when=test)], [self.stub(node.name)]

    def wrote(self, name: str, at: ast.AST, fields: Mapping[str, ast.AST]) -> None:
        """The node of that name, which comes next, is what stands at `at`, and its fields what stands there."""
        self.at = at
        self.places.update({f"{name}.{field}": each for field, each in fields.items()})

    def stub(self, source: str, *, on: str = m.DONE, when: str | None = None) -> Stub:
        self._order += 1
        return Stub(self._order, source, on, when)

    def caught(self, source: str, bind: str) -> Stub:
        """Where any error of `source` goes."""
        return self.stub(source, on=m.ERROR)._replace(bind=bind)

    def fork(self, count: int) -> list[list[Stub]]:
        """The open ends, `count` times: what follows happens side by side."""
        only = self.open[0] if len(self.open) == 1 else None
        is_plain = only is not None and only.on == m.DONE
        if not is_plain or isinstance(self._nodes[self.open[0].source], m.Branch):
            self.add(m.Assign(name=self.name("fork"), set={}), can_fail=False)
        self._last_assign = None
        source = self.open[0].source
        return [[self.stub(source)] for _ in range(count)]

    @property
    def is_handled(self) -> bool:
        """Whether errors of what is drawn now go to a handler."""
        return any(self._handlers)

    @contextmanager
    def handled_by(self, handlers: list[Handler]) -> Iterator[None]:
        """Errors of what is drawn inside go to the first of these that fits, before those around."""
        self._handlers.append(handlers)
        yield
        self._handlers.pop()

    def _guard(self, name: str) -> None:
        """Lead errors to the handlers. A type that one of them takes does not come to those around."""
        taken: set[str] = set()
        for handler in (each for handlers in reversed(self._handlers) for each in handlers):
            types = tuple(each for each in handler.types if each not in taken)
            if types or not handler.types:
                stub = self.stub(name, on=m.ERROR)
                handler.stubs.append(stub._replace(errors=types, bind=handler.bind))
            if not handler.types:
                return
            taken.update(types)

    def _attach(self, stub: Stub, target: str) -> None:
        edge = m.Edge(stub.source, target, stub.on, stub.when, stub.errors, stub.bind)
        self._edges.append((stub.order, edge))
