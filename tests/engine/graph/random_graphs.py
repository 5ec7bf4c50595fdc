"""Random graphs that are valid by construction, and the tasks and children that they call.

A graph grows node by node; each picks what leads to it among the nodes before it, in the same plane. Behind a hook that
is cycled back to everything comes by it, and what is between a spread and its aggregate is a small graph of its own, so
no plane is entered or left but by its door. Loops count their turns, and never read what is the run's alone.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgspec

from perdure import task
from perdure.authoring.graphs.program import GraphProgram
from perdure.authoring.response import Response
from perdure.core.graph import model as m

POOL = ("a", "b", "c")
"""Variables that many nodes set, so that they meet in joins."""

KINDS = {
    "worker": 8,
    "shaky": 5,
    "assign": 4,
    "branch": 4,
    "pass": 1,
    "sleep": 2,
    "child": 2,
    "spread": 3,
    "loop": 3,
    "cycle": 4,
    "raise": 1,
    "output": 2,
    "interrupt": 1,
}
ENDS = (m.OutputNode, m.CycleNode, m.InterruptNode)
INPUT = {
    "x": m.FieldType("int"),
    "y": m.FieldType("int"),
    "xs": m.FieldType("list"),
}


# What graphs call


class Spoiled(LookupError):
    """An error of the user's own."""


def mix(p: int, q: int) -> int:
    return (3 * p + q + 1) % 11


def shaky(p: int) -> Any:
    """Fails, or responds with a code, as its argument says."""
    match p % 7:
        case 0:
            raise ValueError(f"no {p}")
        case 1:
            raise KeyError(f"no {p}")
        case 2:
            raise Spoiled(f"no {p}")
        case 3:
            return Response(p, 404)
        case 4:
            return Response(p, 201)
        case _:
            return p


def child(p: int) -> int:
    """What the child graph does: it fails for some arguments."""
    if p % 4 == 3:
        raise ValueError(f"child {p}")
    return mix(p, 1)


@task
async def oracle_mix(p: int, q: int) -> int:
    return mix(p, q)


@task
async def oracle_shaky(p: int) -> Any:
    return shaky(p)


CHILD = GraphProgram[..., Any](
    m.Graph(
        "oracle_child",
        (
            m.TriggerNode(name="begin"),
            m.BranchNode(name="which"),
            m.RaiseNode(name="refuse", error="ValueError", message="f'child {p}'"),
            m.HookNode(name="nap", sleep="1"),
            m.WorkerNode(name="work", task="oracle_mix", input={"p": "p", "q": "1"}),
            m.OutputNode(name="end", value="work"),
        ),
        (
            m.Edge("begin", "which"),
            m.Edge("which", "refuse", when="p % 4 == 3"),
            m.Edge("which", "nap"),
            m.Edge("nap", "work"),
            m.Edge("work", "end"),
        ),
        input={"p": m.FieldType("int")},
    )
)
PROGRAMS: dict[str, Callable[..., Any]] = {
    "oracle_mix": mix,
    "oracle_shaky": shaky,
    "oracle_child": child,
}


# Graphs


@dataclass
class Place:
    """A node that others may follow. `known` are numbers, and `errors` caught errors, that are there behind it."""

    node: m.AnyNode
    group: tuple[str, ...]
    known: frozenset[str]
    before: frozenset[str]
    errors: frozenset[str] = frozenset()


@dataclass
class Region:
    """The trigger and all behind it, or what is between a spread and its aggregate."""

    places: list[Place] = field(default_factory=list)
    is_body: bool = False


class Maker:
    """Grows one graph."""

    def __init__(self, random: Random, size: int) -> None:
        self._random = random
        self._left = size
        self._nodes: list[m.AnyNode] = []
        self._edges: list[m.Edge] = []
        self._names = 0

    def make(self, name: str) -> m.Graph:
        trigger = m.TriggerNode(name="begin", job={"born": "x"} if self._chance(0.2) else {})
        known = frozenset(("x", "y"))
        self._nodes.append(trigger)
        top = Region([Place(trigger, (), known, known)])
        while self._left > 0:
            self._grow(top, 0)
        self._end_bare_branches()
        self._finish(top)
        return m.Graph(name, tuple(self._nodes), self._ordered(), input=INPUT)

    def _chance(self, share: float) -> bool:
        return self._random.random() < share

    def _pick(self, among: Any) -> Any:
        return self._random.choice(sorted(among) if isinstance(among, frozenset) else list(among))

    def _name(self, kind: str) -> str:
        self._names += 1
        return f"{kind}{self._names}"

    # Expressions

    def _number(self, known: frozenset[str], risk: float = 0.05) -> str:
        one, other = self._pick(known), self._pick(known)
        if self._chance(risk):
            return f"{one} // ({other} % 2)"
        plain = one, f"{one} + {self._random.randint(1, 9)}", f"({one} + {other}) % 10"
        return self._random.choice(plain)

    def _test(self, known: frozenset[str]) -> str:
        one, limit = self._pick(known), self._random.randint(0, 6)
        tests = f"{one} % 2 == 0", f"{one} > {limit}", f"{one} % 3 != {limit % 3}"
        return self._random.choice(tests)

    # Nodes

    def _grow(self, region: Region, depth: int) -> None:
        self._left -= 1
        kinds = dict(KINDS)
        sources = self._sources(region)
        group = sources[0].group
        if region.is_body:
            for kind in ("loop", "cycle", "output"):
                del kinds[kind]
        if depth >= 2:
            del kinds["spread"]
        if not group:
            kinds.pop("cycle", None)
        if len(group) >= 2:
            kinds.pop("loop", None)
        kind = self._random.choices(list(kinds), list(kinds.values()))[0]
        if kind == "cycle":
            self._add_cycle(region, sources)
        elif kind == "spread":
            self._add_spread(region, sources, depth)
        elif kind == "loop":
            self._add_loop(region, sources)
        else:
            name = self._name(kind)
            known, errors = self._meet(self._lead(sources, name))
            node, sets = self._node(kind, name, known, errors)
            place = self._add(region, node, group, known, sets, errors)
            if kind in {"shaky", "child", "raise"} and self._chance(0.7):
                self._mend(region, place)

    def _mend(self, region: Region, place: Place) -> None:
        """Whatever goes wrong at that node is caught."""
        name = self._name("mended")
        self._edges.append(m.Edge(place.node.name, name, m.ERROR, bind="caught"))
        node = m.AssignNode(name=name, set={self._pick(POOL): self._number(place.before, 0)})
        errors = place.errors | {"caught"}
        self._add(region, node, place.group, place.before, frozenset(node.set), errors)

    def _sources(self, region: Region, group: tuple[str, ...] | None = None) -> list[Place]:
        """What leads to the next node: the newest ones more often, and of one plane only."""
        free = [
            place
            for place in region.places
            if not isinstance(place.node, ENDS) and group in (None, place.group)
        ]
        back = self._random.choices((0, 1, 2, 3), (8, 4, 2, 1))[0]
        first = free[-1 - min(back, len(free) - 1)]
        same = [place for place in free if place.group == first.group and place is not first]
        count = min(len(same), self._random.choices((0, 1, 2), (6, 4, 1))[0])
        return [first, *self._random.sample(same, count)]

    def _lead(
        self, sources: list[Place], target: str, limit: str | None = None
    ) -> list[tuple[Place, m.Edge]]:
        """Edges to a node. `limit` is a condition that each of them has."""
        found = []
        for place in sources:
            for edge in self._edges_of(place, target, limit):
                same = (edge.source, edge.target, edge.on, edge.when, edge.errors)
                known = {(e.source, e.target, e.on, e.when, e.errors) for e in self._edges}
                if same not in known:
                    self._edges.append(edge)
                    found.append((place, edge))
        return found

    def _edges_of(self, place: Place, target: str, limit: str | None) -> list[m.Edge]:
        source, name = place.node, place.node.name
        if isinstance(source, m.SpreadNode):
            return [m.Edge(name, target)]
        if isinstance(source, m.RaiseNode):
            return [self._error_edge(place, target, limit)]
        tests = [limit] if limit else []
        if isinstance(source, m.BranchNode) or self._chance(0.3):
            own = isinstance(source, m.WorkerNode) and self._chance(0.5)
            tests.append("code == 200" if own else self._test(place.known))
        when = " and ".join(tests) or None
        is_fallible = not isinstance(source, m.TriggerNode | m.BranchNode | m.AggregateNode)
        is_worker = isinstance(source, m.WorkerNode | m.AwaitNode)
        if is_fallible and self._chance(0.45 if is_worker else 0.15):
            failing = self._error_edge(place, target, limit)
            return [failing, m.Edge(name, target, when=when)] if self._chance(0.2) else [failing]
        if is_worker and self._chance(0.1):
            return [m.Edge(name, target, on=self._pick(("404", "500", "201")), when=when)]
        return [m.Edge(name, target, when=when)]

    def _error_edge(self, place: Place, target: str, limit: str | None) -> m.Edge:
        errors: tuple[str, ...] = ()
        if self._chance(0.5):
            own = f"{Spoiled.__module__}:Spoiled"
            errors = self._pick(
                (("ValueError",), ("LookupError",), (own,), ("KeyError", "ZeroDivisionError"))
            )
        tests = [limit] if limit else []
        if self._chance(0.2):
            tests.append(self._pick((self._test(place.before), "error['type'] != 'KeyError'")))
        bind = "caught" if self._chance(0.5) else None
        when = " and ".join(tests) or None
        return m.Edge(place.node.name, target, m.ERROR, when, errors, bind)

    def _meet(self, edges: list[tuple[Place, m.Edge]]) -> tuple[frozenset[str], frozenset[str]]:
        """What is known where the edges meet, whichever of them are taken."""
        known, errors = [], []
        for place, edge in edges:
            is_done = edge.on in (m.DONE, "201")
            known.append(place.known if is_done else place.before)
            errors.append(place.errors | ({edge.bind} if edge.bind else set()))
        return frozenset.intersection(*known), frozenset.intersection(*errors)

    def _node(
        self,
        kind: str,
        name: str,
        known: frozenset[str],
        errors: frozenset[str],
    ) -> tuple[m.AnyNode, frozenset[str]]:
        """A node, and the numbers that it sets."""
        variable = self._pick(POOL)
        output: dict[str, str] | None = {variable: self._pick(("result", "result + 1", "result"))}
        job = {name: self._number(known, 0)} if self._chance(0.15) else {}
        if kind in {"worker", "child"}:
            if self._chance(0.3):
                output, variable = None, name
            sets = frozenset((variable,))
            if kind == "child":
                given = {"p": self._number(known)}
                return m.AwaitNode(
                    name=name, program="oracle_child", input=given, output=output, job=job
                ), sets
            given = {"p": self._number(known), "q": self._number(known)}
            return m.WorkerNode(
                name=name, task="oracle_mix", input=given, output=output, job=job
            ), sets
        if kind == "shaky":
            retry = m.RetryRule(attempts=2) if self._chance(0.3) else None
            given = {"p": self._number(known)}
            node = m.WorkerNode(
                name=name, task="oracle_shaky", input=given, output=output, job=job, retry=retry
            )
            return node, frozenset((variable,))
        if kind == "assign":
            values = {variable: self._number(known)}
            other = self._pick(POOL)
            if other != variable:
                values[other] = self._number(known | {variable})
            return m.AssignNode(name=name, set=values, job=job), frozenset(values)
        if kind == "raise":
            if errors and self._chance(0.5):
                return m.RaiseNode(name=name, again=self._pick(errors)), frozenset()
            error = self._pick(("ValueError", "KeyError", "app:Broken"))
            return m.RaiseNode(name=name, error=error, message=f"f'{name} {{x}}'"), frozenset()
        nodes: dict[str, m.AnyNode] = {
            "branch": m.BranchNode(name=name),
            "pass": m.HookNode(name=name, job=job),
            "sleep": m.HookNode(name=name, sleep=f"{self._pick(known)} % 3"),
            "output": m.OutputNode(name=name, value=f"[{self._number(known)}, '{name}']"),
            "interrupt": m.InterruptNode(name=name, reason=f"'{name}'", throw=self._chance(0.5)),
        }
        return nodes[kind], frozenset()

    def _add(
        self,
        region: Region,
        node: m.AnyNode,
        group: tuple[str, ...],
        known: frozenset[str],
        sets: frozenset[str] = frozenset(),
        errors: frozenset[str] = frozenset(),
    ) -> Place:
        place = Place(node, group, known | sets, known, errors)
        self._nodes.append(node)
        region.places.append(place)
        return place

    # Planes

    def _add_loop(self, region: Region, sources: list[Place]) -> None:
        group = sources[0].group
        count = self._name("turn")
        start = m.AssignNode(name=f"zero_{count}", set={count: "0"})
        known, errors = self._meet(self._lead(sources, start.name))
        place = self._add(region, start, group, known, frozenset((count,)))
        hook = m.HookNode(name=f"loop_{count}", cycle=True)
        self._edges.append(m.Edge(start.name, hook.name))
        inside = self._add(region, hook, (*group, hook.name), place.known, errors=errors)
        if self._chance(0.8):
            for _ in range(self._random.randint(0, 2)):
                self._grow(region, 0)
            self._add_cycle(region, self._sources(region, inside.group))

    def _add_cycle(self, region: Region, sources: list[Place]) -> None:
        hook = self._pick(sources[0].group)
        count = hook.removeprefix("loop_")
        name = self._name("cycle")
        limit = f"{count} < {self._random.randint(1, 2)}"
        known, _ = self._meet(self._lead(sources, name, limit))
        given = {count: f"{count} + 1"}
        (start,) = (place for place in region.places if place.node.name == f"zero_{count}")
        changed = sorted(set(POOL) & known & start.known)
        if changed and self._chance(0.7):
            given[changed[0]] = self._number(known)
        self._add(region, m.CycleNode(name=name, to=hook, input=given), sources[0].group, known)

    def _add_spread(self, region: Region, sources: list[Place], depth: int) -> None:
        group = sources[0].group
        number = self._name("")
        name, end, item = f"spread{number}", f"gather{number}", f"item{number}"
        known, errors = self._meet(self._lead(sources, name))
        one = self._pick(known)
        items = self._pick(("xs", f"[{one}, {one} + 1]", "[]", f"[{one}]", "[1, 2, 3]"))
        index = f"at{number}" if self._chance(0.3) else None
        spread = m.SpreadNode(name=name, items=items, item=item, index=index)
        own = frozenset((item, index)) if index else frozenset((item,))
        body = Region(is_body=True)
        self._add(body, spread, (), known, own, errors)
        for _ in range(self._random.randint(0, 4)):
            self._grow(body, depth + 1)
        inner, _ = self._meet(self._lead(self._body_ends(body), end))
        collect = self._number(inner, 0)
        job = {end: f"len(got{number})"} if self._chance(0.3) else {}
        aggregate = m.AggregateNode(
            name=end, of=name, collect=collect, into=f"got{number}", job=job
        )
        self._add(region, aggregate, group, known, errors=errors)
        total = m.AssignNode(name=f"sum{number}", set={self._pick(POOL): f"sum(got{number}) % 10"})
        self._edges.append(m.Edge(end, total.name))
        self._add(region, total, group, known, frozenset(total.set), errors)

    def _body_ends(self, body: Region) -> list[Place]:
        """All paths of an item end at its aggregate."""
        sources = {edge.source for edge in self._edges}
        ends = [
            place
            for place in body.places
            if place.node.name not in sources
            and not isinstance(place.node, m.RaiseNode | m.InterruptNode)
        ]
        extra = [
            place
            for place in body.places
            if place not in ends and not isinstance(place.node, m.InterruptNode)
        ]
        if not ends or self._chance(0.2):
            ends.append(self._pick(extra or body.places))
        return ends

    def _end_bare_branches(self) -> None:
        """A branch leads somewhere."""
        sources = {edge.source for edge in self._edges if edge.on == m.DONE}
        for node in list(self._nodes):
            if isinstance(node, m.BranchNode) and node.name not in sources:
                last = m.HookNode(name=self._name("end"))
                self._nodes.append(last)
                self._edges.append(m.Edge(node.name, last.name))

    def _finish(self, top: Region) -> None:
        """Half of the graphs have an output at one of their ends."""
        place = top.places[-1]
        if isinstance(place.node, ENDS) or self._chance(0.5):
            return
        known, _ = self._meet(self._lead([place], "finish"))
        self._nodes.append(m.OutputNode(name="finish", value=self._number(known)))

    def _ordered(self) -> tuple[m.Edge, ...]:
        """Of alternatives, the one that is always taken is the last; if there are more, they get a condition."""
        branches = {node.name for node in self._nodes if isinstance(node, m.BranchNode)}
        edges: list[m.Edge] = []
        last: dict[tuple[str, str], m.Edge] = {}
        for edge in self._edges:
            is_alternative = edge.on == m.ERROR or edge.source in branches
            if not is_alternative or edge.when is not None or edge.errors:
                edges.append(edge)
                continue
            if (edge.source, edge.on) in last:
                before = last[edge.source, edge.on]
                edges.append(msgspec.structs.replace(before, when="x % 2 == 0"))
            last[edge.source, edge.on] = edge
        return *edges, *last.values()


def random_graph(random: Random, size: int, name: str = "oracled") -> m.Graph:
    return Maker(random, size).make(name)


def random_input(random: Random) -> dict[str, Any]:
    xs = [random.randint(0, 9) for _ in range(random.randint(0, 3))]
    return {"x": random.randint(0, 9), "y": random.randint(0, 9), "xs": xs}
