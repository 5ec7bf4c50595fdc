"""Runs a graph in memory, by the letter of the model: one plane after the other, nodes in the order of their edges.

It has no journal and no ledger, and exists to be simple: where it and the engine disagree, one of them has a bug.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from perdure.authoring.context import WORKFLOW
from perdure.core.codec import JsonCodec
from perdure.core.expressions import parse
from perdure.core.graph import model as m
from perdure.core.graph.step_error import (
    StepError,
    bound_step_error,
    named_step_error,
    step_error_from,
)
from perdure.core.graph.survey import Survey
from tests.authoring.graphs.inline import Impossible, Inline, driven

Scope = dict[str, Any]
CODEC = JsonCodec()


def plain(value: Any) -> Any:
    """The value as data: as a store returns it."""
    return CODEC.decode(CODEC.encode(value), object)


def require(holds: bool, what: str) -> None:
    """Asserts that the graph matches the model: no error edge handles this."""
    if not holds:
        raise Impossible(what)


class Failed(Exception):
    """The run failed."""

    def __init__(self, trouble: StepError) -> None:
        super().__init__(trouble.type_name, trouble.message)
        self.trouble = trouble


class Ended(NamedTuple):
    """How a node ended, and the scope behind it."""

    on: str
    scope: Scope
    trouble: StepError | None = None


class World:
    """The surroundings of a run: definitions by their names, and signals."""

    def __init__(self, definitions: Iterable[Any], signals: Iterable[tuple[str, Any]]) -> None:
        self._definitions = {definition.name: definition for definition in definitions}
        self._inline = Inline([])
        self.signals = [(name, plain(value)) for name, value in signals]
        self.passed: list[str] = []
        """The nodes that were passed, in order."""

    def graph(self, name: str) -> m.Graph | None:
        found = getattr(self._definitions[name], "model", None)
        return found if isinstance(found, m.Graph) else None

    def call(self, name: str, arguments: Scope) -> Any:
        definition = self._definitions[name]
        args, kwargs = definition.signature.unpack(CODEC, CODEC.encode(arguments))
        token = WORKFLOW.set(self._inline)  # type: ignore[arg-type]
        try:
            made = definition.fn(*args, **kwargs)
            return plain(driven(made) if hasattr(made, "send") else made)
        finally:
            WORKFLOW.reset(token)

    def receive(self, topic: str) -> list[Any]:
        """The oldest signal of the topic, if any."""
        for number, (name, value) in enumerate(self.signals):
            if name == topic:
                del self.signals[number]
                return [value]
        return []


def interpret(graph: m.Graph, given: Scope, world: World) -> Any:
    """The result of a run of the graph; raises `Failed`."""
    return _Run(graph, plain(given), world).result()


class _Run:
    def __init__(self, graph: m.Graph, given: Scope, world: World) -> None:
        fields = graph.input if graph.input is not None else {}
        defaults = {name: f.default for name, f in fields.items() if not f.required}
        self._inputs = {**defaults, **given}
        self._survey = Survey(graph)
        self._nodes = self._survey.nodes
        self._world = world
        self._outputs: list[Any] = []
        self._first: dict[str, Scope] = {}
        self._next: list[tuple[str, Scope]] = []
        self._order = list(self._survey.in_order())

    def result(self) -> Any:
        (start,) = self._survey.beginnings
        self._next.append((start, dict(self._inputs)))
        while self._next:
            self._plane(*self._next.pop())
            require(len(self._next) <= 1, "several paths went back at once")
        require(len(self._outputs) == 1, f"{len(self._outputs)} outputs")
        return self._outputs[0]

    def _plane(self, start: str, scope: Scope) -> None:
        inside = self._survey.reach((start,))
        for name in inside - {start}:
            ways = self._survey.incoming[name]
            require(all(way.edge.source in inside for way in ways), f"{name} joins two planes")
        self._walk([name for name in self._order if name in inside], {start: [scope]}, {start})

    def _walk(self, names: list[str], given: dict[str, list[Scope]], starts: set[str]) -> None:
        """Pass the nodes in their order. `given` are the scopes of the edges that were taken, by target."""
        done: set[str] = set()
        for name in names:
            if name in done or name not in given:
                continue  # skipped: no edge to it was taken
            node = self._nodes[name]
            scope = _joined(given[name])
            self._world.passed.append(name)
            if isinstance(node, m.HookNode) and node.cycle and name not in starts:
                self._first[name] = scope
            if isinstance(node, m.SpreadNode):
                aggregate, values = self._spread(node, scope)
                done |= self._survey.reach((name,), without=aggregate.name) | {aggregate.name}
                passed = Ended(m.DONE, {**scope, aggregate.into: values})
                self._leave(aggregate.name, passed, given)
            else:
                self._leave(name, self._pass(node, scope), given)

    def _leave(self, name: str, ended: Ended, given: dict[str, list[Scope]]) -> None:
        """Take the edges that fit. An error, and a branch, go along the first."""
        is_single = ended.on == m.ERROR or isinstance(self._nodes[name], m.BranchNode)
        taken = 0
        for edge in (numbered.edge for numbered in self._survey.outgoing[name]):
            if edge.on != ended.on or (taken and is_single):
                continue
            if ended.trouble is not None and not ended.trouble.is_one_of(edge.errors):
                continue
            if edge.when is not None:
                try:
                    holds = self._value(edge.when, ended.scope)
                except Exception as error:  # the evaluation's, which is the branch's
                    self._leave(name, Ended(m.ERROR, ended.scope, step_error_from(error)), given)
                    return
                if not holds:
                    continue
            taken += 1
            bound = {}
            if edge.bind is not None and ended.trouble is not None:
                bound = {edge.bind: ended.trouble.bound}
            given.setdefault(edge.target, []).append({**ended.scope, **bound})
        if ended.trouble is not None and not taken:
            raise Failed(ended.trouble)
        is_end = isinstance(self._nodes[name], m.OutputNode | m.CycleNode)
        require(taken > 0 or is_end, f"no edge of {name} fits")

    def _pass(self, node: m.AnyNode, scope: Scope) -> Ended:
        try:
            return _RULES[type(node)](self, node, scope)
        except Failed as failed:
            return Ended(m.ERROR, scope, failed.trouble)
        except Exception as error:  # a step's, or an evaluation's
            return Ended(m.ERROR, scope, step_error_from(error))

    def _value(self, text: str, scope: Scope) -> Any:
        return parse(text).evaluate({**scope, "input": self._inputs})

    def _maps(self, maps: m.Maps | None, scope: Scope) -> Scope:
        return {name: plain(self._value(text, scope)) for name, text in (maps or {}).items()}

    def _responded(self, node: Any, scope: Scope, result: Any) -> Ended:
        require(node.output is not None, f"{node.name} does not say what becomes of its result")
        return Ended(m.DONE, {**scope, **self._maps(node.output, {**scope, "result": result})})

    def _worker(self, node: m.WorkerNode, scope: Scope) -> Ended:
        result = self._world.call(node.task, self._maps(node.input, scope))
        return self._responded(node, scope, result)

    def _program(self, node: m.AwaitNode | m.CallNode, scope: Scope) -> Ended:
        name = node.program if isinstance(node, m.AwaitNode) else node.graph
        arguments = self._maps(node.input, scope)
        graph = self._world.graph(name)
        if graph is None:
            return self._responded(node, scope, self._world.call(name, arguments))
        return self._responded(node, scope, interpret(graph, arguments, self._world))

    def _hook(self, node: m.HookNode, scope: Scope) -> Ended:
        if node.sleep is not None:
            seconds = self._value(node.sleep, scope)
            require(isinstance(seconds, int | float), f"{node.name} sleeps for {seconds!r}")
        if node.topic is None:
            return Ended(m.DONE, scope)
        received = self._world.receive(node.topic)
        if received:
            return self._responded(node, scope, received[0])
        require(node.sleep is not None, f"no signal {node.topic!r}")
        return Ended(m.TIMEOUT, scope)

    def _assign(self, node: m.AssignNode, scope: Scope) -> Ended:
        scope = dict(scope)
        for name, text in node.set.items():
            scope[name] = plain(self._value(text, scope))
        return Ended(m.DONE, scope)

    def _cycle(self, node: m.CycleNode, scope: Scope) -> Ended:
        taken = self._maps(node.input, scope)
        self._next.append((node.to, {**self._first[node.to], **taken}))
        return Ended(m.DONE, scope)

    def _output(self, node: m.OutputNode, scope: Scope) -> Ended:
        self._outputs.append(plain(self._value(node.value, scope)))
        return Ended(m.DONE, scope)

    def _raise(self, node: m.RaiseNode, scope: Scope) -> Ended:
        if node.again is not None:
            return Ended(m.ERROR, scope, bound_step_error(scope[node.again]))
        message = self._value(node.message, scope)
        require(isinstance(message, str), f"{node.name} says {message!r}")
        return Ended(m.ERROR, scope, named_step_error(node.error, message, node.bases))

    def _spread(self, node: m.SpreadNode, scope: Scope) -> tuple[m.AggregateNode, list[Any]]:
        (aggregate,) = (a for a in self._survey.of_kind(m.AggregateNode) if a.of == node.name)
        body = self._survey.reach((node.name,), without=aggregate.name) - {node.name}
        values = []
        for item in self._value(node.items, scope):
            given: dict[str, list[Scope]] = {}
            self._leave(node.name, Ended(m.DONE, {**scope, node.item: item}), given)
            self._walk([name for name in self._order if name in body], given, set())
            if aggregate.name in given:
                values.append(plain(self._value(aggregate.collect, _joined(given[aggregate.name]))))
        return aggregate, values


def _joined(scopes: list[Scope]) -> Scope:
    """The scopes of paths that join: they agree on the variables that both have."""
    joined: Scope = {}
    for scope in scopes:
        clash = {name for name in joined.keys() & scope.keys() if joined[name] != scope[name]}
        require(not clash, f"paths join that disagree on {clash}")
        joined |= scope
    return joined


_RULES: dict[type, Callable[[_Run, Any, Scope], Ended]] = {
    m.TriggerNode: lambda _run, _node, scope: Ended(m.DONE, scope),
    m.BranchNode: lambda _run, _node, scope: Ended(m.DONE, scope),
    m.WorkerNode: _Run._worker,
    m.AwaitNode: _Run._program,
    m.CallNode: _Run._program,
    m.HookNode: _Run._hook,
    m.AssignNode: _Run._assign,
    m.CycleNode: _Run._cycle,
    m.OutputNode: _Run._output,
    m.RaiseNode: _Run._raise,
}
