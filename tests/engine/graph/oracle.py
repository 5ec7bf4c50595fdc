"""What a graph must do, found in the simplest way: tokens pass along edges, one at a time, in memory.

Written from the model's own words alone. It shares the language of expressions with the engine and nothing else:
neither the lowering nor the walks. A plane is a dict here, from the nodes that open planes to the number of the time.

Where paths run side by side, more than one outcome may be right. Then it lists all of them: every output that is
reached, every value that was written to the job, every unhandled failure. A failure stops its own path only,
so that the list is the most that may happen before the run ends by it.
"""

import builtins
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeAlias

from perdure.authoring.response import Response
from perdure.core.expressions import parse
from perdure.core.graph import model as m

Scope: TypeAlias = dict[str, Any]
Plane: TypeAlias = dict[str, int]
Place: TypeAlias = tuple[str, tuple[tuple[str, int], ...]]

MOST_STEPS = 160
"""A graph that does more is too large for this test."""


class TooLarge(Exception):
    """The graph does more than a test has time for."""


class Missing:
    """The value of a variable that is not there."""


@dataclass(frozen=True)
class Trouble:
    """A failure, by the names that error edges know it by."""

    own: str
    message: str
    names: frozenset[str]
    code: int = 500

    @property
    def type(self) -> str:
        return self.own.rpartition(":")[2]

    @property
    def seen(self) -> dict[str, Any]:
        return {"type": self.type, "message": self.message}


def trouble_of(error: BaseException) -> Trouble:
    names = [f"{cls.__module__}:{cls.__qualname__}" for cls in type(error).__mro__]
    return Trouble(names[0], str(error), frozenset(names))


@dataclass(frozen=True)
class Answer:
    result: Any = None
    code: int = 200
    trouble: Trouble | None = None

    @property
    def specials(self) -> Scope:
        if self.trouble is None:
            return {"result": self.result, "code": self.code, "error": None}
        return {"result": self.result, "code": self.trouble.code, "error": self.trouble.seen}


@dataclass
class Expected:
    """All that must or may be true of the run."""

    ran: Counter[str] = field(default_factory=Counter)
    """Steps that begin."""
    skipped: set[str] = field(default_factory=set)
    calls: dict[str, tuple[str, Scope]] = field(default_factory=dict)
    """What each step asks of a task or a child, in planes that are known."""
    outputs: list[Any] = field(default_factory=list)
    job: dict[str, list[Any]] = field(default_factory=dict)
    failures: set[tuple[str, str]] = field(default_factory=set)
    is_exact: bool = True
    """Whether the numbers of planes follow from the graph alone: not if a turn of a loop goes back twice."""
    leaves_turning: bool = False
    """Whether a path leaves a loop in a turn that goes round again."""

    @property
    def asked(self) -> Counter[str]:
        """The calls, whichever plane they are in."""
        return Counter(
            f"{name.partition(',')[0]}: {task}{arguments}"
            for name, (task, arguments) in self.calls.items()
        )

    @property
    def activities(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for step, count in self.ran.items():
            found[step.partition(",")[0]] += count
        return found


class Layout:
    """Where the nodes of a graph stand."""

    def __init__(self, graph: m.Graph) -> None:
        self.nodes = {node.name: node for node in graph.nodes}
        self.edges = graph.edges
        self.trigger = next(n.name for n in graph.nodes if isinstance(n, m.TriggerNode))
        self.out: dict[str, list[int]] = {name: [] for name in self.nodes}
        self.into: dict[str, list[int]] = {name: [] for name in self.nodes}
        for number, edge in enumerate(graph.edges):
            self.out[edge.source].append(number)
            self.into[edge.target].append(number)
        self.aggregates = {n.of: n.name for n in graph.nodes if isinstance(n, m.AggregateNode)}
        self.cycles = [n for n in graph.nodes if isinstance(n, m.CycleNode)]
        self.reach = cache(self._reach)
        self.openers = cache(self._openers)
        self.depth = cache(self._depth)
        self.is_inside = cache(self._is_inside)
        self.parting = cache(self._parting)

    def _reach(self, name: str, without: str = "") -> frozenset[str]:
        """What a path leads to from there, itself among them."""
        found, waiting = {name}, [name]
        while waiting:
            for number in self.out[waiting.pop()]:
                target = self.edges[number].target
                if target not in found and target != without:
                    found.add(target)
                    waiting.append(target)
        return frozenset(found)

    def is_activity(self, name: str) -> bool:
        return not isinstance(self.nodes[name], m.INLINE)

    def _opens(self, name: str) -> bool:
        node = self.nodes[name]
        return isinstance(node, m.SpreadNode) or (isinstance(node, m.HookNode) and node.cycle)

    def _openers(self, name: str) -> tuple[str, ...]:
        """Hooks that are cycled back to, and spreads, whose planes it is in, from the outermost."""
        found = []
        for opener in self.nodes:
            if opener == name or not self._opens(opener) or name not in self.reach(opener):
                continue
            end = self.aggregates.get(opener)
            if end is None or name not in self.reach(end):
                found.append(opener)
        return tuple(sorted(found, key=self.depth))

    def _depth(self, name: str) -> int:
        above = [self.depth(self.edges[number].source) for number in self.into[name]]
        return max(above, default=-1) + (self.is_activity(name) or self._opens(name))

    def _is_inside(self, name: str, hook: str) -> bool:
        """Whether a path leads from it back to the hook, and to no hook before that."""
        found, waiting = {name}, [name]
        while waiting:
            reached = self.reach(waiting.pop())
            back = {cycle.to for cycle in self.cycles if cycle.name in reached}
            if hook in back:
                return True
            inner = {each for each in back if each in self.reach(hook)}
            waiting.extend(inner - found)
            found |= inner
        return False

    def _parting(self, name: str) -> str:
        """The last node that every path to this one passes."""
        gates = [
            other
            for other in self.nodes
            if other not in (name, self.trigger) and name not in self.reach(self.trigger, other)
        ]
        gates.append(self.trigger)
        return max(gates, key=lambda gate: sum(gate in self.reach(other) for other in gates))

    def place(self, name: str, plane: Plane) -> Place:
        return name, tuple((opener, plane[opener]) for opener in self.openers(name))

    def step(self, name: str, plane: Plane) -> str:
        numbers = [0] * (self.depth(name) + 1)
        for opener in self.openers(name):
            numbers[self.depth(opener)] = plane[opener]
        return ",".join([name, *map(str, numbers)])


class Oracle:
    """One run. `tasks` and `children` are functions that do what those of the engine do."""

    def __init__(self, graph: m.Graph, programs: dict[str, Callable[..., Any]]) -> None:
        self._layout = Layout(graph)
        self._programs = programs
        self.expected = Expected()
        self._queue: deque[tuple[int, Plane, Scope | None]] = deque()
        self._boxes: dict[Place, dict[tuple[int, int], Scope | None]] = {}
        self._spreads: dict[Place, tuple[int, Scope]] = {}
        self._passed: dict[Place, Scope] = {}
        """The scope with which each node was left, in each plane."""
        self._first: dict[Place, Scope] = {}
        self._turns: Counter[Place] = Counter()
        self._returns: Counter[tuple[str, tuple[tuple[str, int], ...]]] = Counter()
        """How often each turn of a loop goes round again."""
        self._lives: list[tuple[str, Plane]] = []
        self._skips: list[tuple[str, Plane]] = []

    def run(self, given: Scope) -> Expected:
        trigger = self._layout.nodes[self._layout.trigger]
        self._leave(trigger, {}, {**given, "input": given}, Answer())
        while self._queue:
            self._arrive(*self._queue.popleft())
        self._judge_turns()
        return self.expected

    # Tokens

    def _leave(self, node: m.AnyNode, plane: Plane, scope: Scope, answer: Answer) -> None:
        try:
            if answer.trouble is None:
                scope = self._scope_of_results(node, scope, answer)
                self._go(node, plane, scope, self._ways(node, scope, answer))
                return
        except Exception as error:  # an expression's
            answer = Answer(trouble=trouble_of(error))
        trouble = answer.trouble
        assert trouble is not None
        try:
            handler = self._handler(node, scope, trouble, answer)
        except Exception as error:  # a condition's: nothing is for that
            handler, trouble = None, trouble_of(error)
        if handler is None:
            self.expected.failures.add((trouble.type, trouble.message))
            return
        bind = self._layout.edges[handler].bind
        if bind is not None:
            bound = {**trouble.seen, "names": sorted(trouble.names), "of": trouble.own}
            scope = {**scope, bind: bound}
        self._go(node, plane, scope, [handler])

    def _go(self, node: m.AnyNode, plane: Plane, scope: Scope, chosen: list[int]) -> None:
        self._passed[self._inner(node, plane)] = scope
        for number in self._layout.out[node.name]:
            self._queue.append((number, plane, scope if number in chosen else None))

    def _ways(self, node: m.AnyNode, scope: Scope, answer: Answer) -> list[int]:
        """The edges that are followed from here."""
        found = []
        for number in self._layout.out[node.name]:
            edge = self._layout.edges[number]
            if edge.on in (m.DONE, str(answer.code)) and self._holds(edge, scope, answer):
                found.append(number)
                if isinstance(node, m.BranchNode):
                    break
        return found

    def _inner(self, node: m.AnyNode, plane: Plane) -> Place:
        """The place of what follows the node directly."""
        openers = [*self._layout.openers(node.name), node.name]
        return node.name, tuple((each, plane[each]) for each in openers if each in plane)

    def _holds(self, edge: m.Edge, scope: Scope, answer: Answer) -> bool:
        return edge.when is None or bool(self._value(edge.when, {**scope, **answer.specials}))

    def _handler(
        self, node: m.AnyNode, scope: Scope, trouble: Trouble, answer: Answer
    ) -> int | None:
        for on in (str(trouble.code), m.ERROR):
            for number in self._layout.out[node.name]:
                edge = self._layout.edges[number]
                names = {e if ":" in e else f"builtins:{e}" for e in edge.errors}
                if edge.on == on and (not names or names & trouble.names):
                    if self._holds(edge, scope, answer):
                        return number
        return None

    def _scope_of_results(self, node: m.AnyNode, scope: Scope, answer: Answer) -> Scope:
        """The scope with what the node sets, and what it says of the job."""
        seen = {**scope, **answer.specials}
        output = getattr(node, "output", None)
        if output is not None:
            scope = {**scope, **{n: self._value(text, seen) for n, text in output.items()}}
        elif isinstance(node, m.WorkerNode | m.AwaitNode):
            scope = {**scope, node.name: answer.result}
        for name, text in getattr(node, "job", {}).items():
            value = self._value(text, {**scope, **answer.specials})
            self.expected.job.setdefault(name, []).append(value)
        return scope

    def _value(self, text: str, scope: Scope) -> Any:
        return parse(text).evaluate(scope)

    def _arrive(self, number: int, plane: Plane, scope: Scope | None) -> None:
        layout = self._layout
        target = layout.nodes[layout.edges[number].target]
        place = layout.place(target.name, plane)
        box = self._boxes.setdefault(place, {})
        required = len(layout.into[target.name])
        item = 0
        if isinstance(target, m.AggregateNode):
            item = plane[target.of]
            required *= self._spreads[place][0]
        assert (item, number) not in box, f"edge {number} is resolved twice in {plane}"
        box[item, number] = scope
        if len(box) < required:
            return
        outer = {opener: plane[opener] for opener in layout.openers(target.name)}
        if isinstance(target, m.AggregateNode):
            self._collect(target, outer, box)
        else:
            self._resolve(target, outer, self._joined(target.name, outer, box))

    def _joined(
        self, name: str, plane: Plane, box: dict[tuple[int, int], Scope | None]
    ) -> Scope | None:
        """What the paths changed since they parted counts, that of the later edge last."""
        scopes = [box[each] for each in sorted(box)]
        live = [scope for scope in scopes if scope is not None]
        if len(live) < 2:
            return live[0] if live else None
        parting = self._layout.nodes[self._layout.parting(name)]
        base = self._passed[self._inner(parting, plane)]
        merged = dict(live[0])
        for scope in live[1:]:
            for variable, value in scope.items():
                if variable not in merged or value != base.get(variable, Missing):
                    merged[variable] = value
        return merged

    def _collect(
        self, node: m.AggregateNode, plane: Plane, box: dict[tuple[int, int], Scope | None]
    ) -> None:
        count, scope = self._spreads[self._layout.place(node.name, plane)]
        values = []
        for item in range(count):
            arrived = {each: box[each] for each in box if each[0] == item}
            inner = self._joined(node.name, {**plane, node.of: item}, arrived)
            if inner is not None:
                values.append(self._value(node.collect, inner))
        self._resolve(node, plane, {**scope, node.into: values})

    # Nodes

    def _resolve(self, node: m.AnyNode, plane: Plane, scope: Scope | None) -> None:
        if scope is None:
            self._skip(node, plane)
            return
        self._lives.append((node.name, plane))
        if self._layout.is_activity(node.name):
            self._begin(node, plane, scope)
        else:
            self._evaluate(node, plane, scope)

    def _skip(self, node: m.AnyNode, plane: Plane) -> None:
        if isinstance(node, m.SpreadNode):
            self._skip(self._layout.nodes[self._layout.aggregates[node.name]], plane)
            return
        self._skips.append((node.name, plane))
        if isinstance(node, m.HookNode) and node.cycle:
            plane = {**plane, node.name: 0}
        for number in self._layout.out[node.name]:
            self._queue.append((number, plane, None))

    def _evaluate(self, node: m.AnyNode, plane: Plane, scope: Scope) -> None:
        answer = Answer()
        try:
            if isinstance(node, m.SpreadNode):
                self._spread(node, plane, scope)
                return
            if isinstance(node, m.OutputNode):
                self.expected.outputs.append(self._value(node.value, scope))
                return
            if isinstance(node, m.AssignNode):
                for name, text in node.set.items():
                    scope = {**scope, name: self._value(text, scope)}
            elif isinstance(node, m.RaiseNode):
                answer = Answer(trouble=self._raised(node, scope))
        except Exception as error:  # an expression's
            answer = Answer(trouble=trouble_of(error))
        self._leave(node, plane, scope, answer)

    def _raised(self, node: m.RaiseNode, scope: Scope) -> Trouble:
        if node.again is not None:
            bound = scope[node.again]
            return Trouble(bound["of"], bound["message"], frozenset(bound["names"]))
        names = {"builtins:Exception", *node.bases}
        cls = getattr(builtins, node.error, None)
        if cls is not None:
            names |= {f"builtins:{each.__name__}" for each in cls.__mro__}
        own = node.error if ":" in node.error else f"builtins:{node.error}"
        return Trouble(own, str(self._value(node.message, scope)), frozenset({own, *names}))

    def _spread(self, node: m.SpreadNode, plane: Plane, scope: Scope) -> None:
        items = self._value(node.items, scope)
        aggregate = self._layout.nodes[self._layout.aggregates[node.name]]
        if not items:
            assert isinstance(aggregate, m.AggregateNode)
            self._resolve(aggregate, plane, {**scope, aggregate.into: []})
            return
        self._spreads[self._layout.place(aggregate.name, plane)] = len(items), scope
        for number, item in enumerate(items):
            inner = {**scope, node.item: item}
            if node.index is not None:
                inner[node.index] = number
            self._leave(node, {**plane, node.name: number}, inner, Answer())

    def _begin(self, node: m.AnyNode, plane: Plane, scope: Scope) -> None:
        step = self._layout.step(node.name, plane)
        try:
            given = {n: self._value(t, scope) for n, t in getattr(node, "input", {}).items()}
            if isinstance(node, m.HookNode) and node.sleep is not None:
                self._value(node.sleep, scope)
            reason = self._value(node.reason, scope) if isinstance(node, m.InterruptNode) else ""
        except Exception as error:  # it never begins
            self._leave(node, plane, scope, Answer(trouble=trouble_of(error)))
            return
        self.expected.ran[step] += 1
        if sum(self.expected.ran.values()) > MOST_STEPS:
            raise TooLarge
        if isinstance(node, m.WorkerNode | m.AwaitNode):
            name = node.task if isinstance(node, m.WorkerNode) else node.program
            self.expected.calls[step] = name, given
            self._leave(node, plane, scope, self._answer(name, given))
        elif isinstance(node, m.CycleNode):
            self._return(node, plane, given)
        elif isinstance(node, m.InterruptNode):
            self.expected.failures.add(
                ("RunInterrupted", str(reason)) if node.throw else ("cancelled", str(reason))
            )
        elif isinstance(node, m.HookNode) and node.cycle:
            self._first[self._layout.place(node.name, plane)] = scope
            self._leave(node, {**plane, node.name: 0}, scope, Answer())
        else:
            self._leave(node, plane, scope, Answer())

    def _answer(self, name: str, given: Scope) -> Answer:
        try:
            value = self._programs[name](**given)
        except Exception as error:  # what it is made to do
            return Answer(trouble=trouble_of(error))
        if not isinstance(value, Response):
            return Answer(value)
        if value.code < 400:
            return Answer(value.data, value.code)
        own = "perdure.core.errors:ResponseError"
        names = frozenset((own, "builtins:Exception"))
        trouble = Trouble(own, f"code {value.code}: {value.data}", names, value.code)
        return Answer(value.data, value.code, trouble)

    # Loops

    def _return(self, cycle: m.CycleNode, plane: Plane, given: Scope) -> None:
        hook = self._layout.nodes[cycle.to]
        place = self._layout.place(cycle.to, plane)
        self._turns[place] += 1
        self._returns[self._inner(hook, plane)] += 1
        outer = {opener: plane[opener] for opener in self._layout.openers(cycle.to)}
        scope = {**self._first[place], **given}
        self._leave(hook, {**outer, cycle.to: self._turns[place]}, scope, Answer())

    def _judge_turns(self) -> None:
        """A skip that leads out of a loop is none while the loop continues."""
        self.expected.is_exact = all(count == 1 for count in self._returns.values())
        self.expected.leaves_turning = any(self._is_behind(*live) for live in self._lives)
        for name, plane in self._skips:
            if self._layout.is_activity(name) and not self._is_behind(name, plane):
                self.expected.skipped.add(self._layout.step(name, plane))

    def _is_behind(self, name: str, plane: Plane) -> bool:
        """Whether it is behind a loop that goes round again in that plane."""
        return any(
            not self._layout.is_inside(name, opener)
            and self._returns[self._inner(self._layout.nodes[opener], plane)]
            for opener in self._layout.openers(name)
        )
