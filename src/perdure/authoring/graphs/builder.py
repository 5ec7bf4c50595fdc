"""Graphs made by programs: a builder with a method for each kind of node."""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from itertools import pairwise
from types import NoneType
from typing import Any, Final, TypeAlias, TypedDict, Unpack, get_args

import msgspec

from perdure.authoring.durations import Duration
from perdure.authoring.graphs.arguments import argument_problems
from perdure.authoring.graphs.program import GraphProgram
from perdure.authoring.graphs.values import seconds_of, spelled
from perdure.authoring.program import Program
from perdure.authoring.signal import Signal
from perdure.authoring.task import Task
from perdure.core.errors import ExpressionProblem, InputError
from perdure.core.graph import model as m
from perdure.core.graph.checking import invalid, problems_of
from perdure.core.graph.fields import ARGUMENTS, EXPRESSIONS, VARIABLE_MAPS
from perdure.core.graph.model import FieldType, Graph, Problem, RetryRule, Type
from perdure.core.graph.starting import started
from perdure.core.graph.suggestions import did_you_mean

Expression: TypeAlias = str | int | float | bool | None
"""Text is an expression, in the subset of Python that graphs use; anything else stands for itself."""

Expressions: TypeAlias = Mapping[str, Expression]
FieldSpec: TypeAlias = type | Type | FieldType | None

_TYPES: Final[dict[Any, Type]] = {
    Any: "any",
    str: "str",
    int: "int",
    float: "float",
    bool: "bool",
    list: "list",
    dict: "dict",
    None: "none",
    NoneType: "none",
}

_OPTIONAL: Final = frozenset(("emit", "key", "run", "target"))
"""Expressions that need not be given; of these None is none."""


class TriggerOptions(TypedDict, total=False):
    keys: Expressions
    job: Expressions
    emit: Expression
    persist: bool


class ResponseOptions(TypedDict, total=False):
    """What every node takes that responds. Without `output` the result is a variable of the node's name."""

    output: Expressions
    job: Expressions


class WorkerOptions(ResponseOptions, total=False):
    input: Expressions
    retry: RetryRule
    timeout: Duration
    pending: bool


class AwaitOptions(ResponseOptions, total=False):
    input: Expressions
    wait: bool


class HookOptions(ResponseOptions, total=False):
    key: Expression
    timeout: Expression | timedelta
    cycle: bool
    pending: bool


class SignalOptions(TypedDict, total=False):
    data: Expression
    key: Expression
    run: Expression
    all: str
    scrub: bool
    code: int
    job: Expressions


class InterruptOptions(TypedDict, total=False):
    target: Expression
    reason: Expression
    throw: bool
    code: int
    descend: bool
    job: Expressions


class RaiseOptions(TypedDict, total=False):
    message: Expression
    again: str
    bases: Iterable[str]


class EdgeOptions(TypedDict, total=False):
    on: str | int
    when: Expression
    errors: Iterable[str | type[BaseException]]
    bind: str


class Inputs:
    """The fields of a graph's input: each attribute is the expression that reads it."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = tuple(names)

    def __getattr__(self, name: str) -> str:
        if name in self._names:
            return name
        remedy = did_you_mean(name, self._names, f"it has {', '.join(self._names) or 'none'}")
        raise AttributeError(f"the graph's input has no field {name!r}: {remedy}")

    def __dir__(self) -> list[str]:
        return list(self._names)


class GraphBuilder:
    """Collects nodes and edges; `build` checks them and makes the graph.

    Every method that adds a node returns its name. Expressions are texts; for a text itself write its `repr`.
    """

    def __init__(
        self,
        name: str,
        *,
        version: str = "",
        input: Mapping[str, FieldSpec] | None = None,  # noqa: A002 - the word of graphs for it
        output: Mapping[str, FieldSpec] | None = None,
        source: str = "",
    ) -> None:
        self._name = name
        self._version = version
        self._input = _schema("input", input)
        self._output = _schema("output", output)
        self._source = source
        self._nodes: list[m.AnyNode] = []
        self._edges: list[m.Edge] = []
        self._problems: list[Problem] = []
        self._words: dict[tuple[str, str], str] = {}
        """By node and field of the model: what it is called here, if that is another word."""
        self.input = Inputs(self._input or ())

    # Activities

    def trigger(self, name: str = "start", **options: Unpack[TriggerOptions]) -> str:
        """Where a run begins. Without one, it begins in every node that no edge leads to."""
        return self._add(m.Trigger, name, options)

    def worker(
        self, name: str, task: Task[..., Any] | str, **options: Unpack[WorkerOptions]
    ) -> str:
        """Calls a task, with `input` as its arguments."""
        return self._add(m.Worker, name, options, task=_name_of(task))

    def wait_for(
        self, name: str, program: Program[..., Any] | str, **options: Unpack[AwaitOptions]
    ) -> str:
        """Starts another program as a child run, and waits for it: an await."""
        return self._add(m.Await, name, options, program=_name_of(program))

    def hook(
        self, name: str, topic: Signal[Any] | str | None = None, **options: Unpack[HookOptions]
    ) -> str:
        """Waits for a signal, up to `timeout` seconds; without a topic for nothing. `cycle` lets cycles return here."""
        given: dict[str, Any] = {**options}
        limit = given.pop("timeout", None)
        sleep = None if limit is None else self._wait(name, "timeout", limit)
        topic = None if topic is None else _name_of(topic)
        return self._add(m.Hook, name, given, topic=topic, sleep=sleep)

    def sleep(
        self, name: str, seconds: Expression | timedelta, **options: Unpack[ResponseOptions]
    ) -> str:
        """Waits for a time."""
        return self._add(m.Hook, name, options, sleep=self._wait(name, "seconds", seconds))

    def signal(self, name: str, topic: Signal[Any] | str, **options: Unpack[SignalOptions]) -> str:
        """Sends a signal: by `key`, to a `run`, or to all runs whose search key `all` has the value of `key`."""
        return self._add(m.Signal, name, options, topic=_name_of(topic))

    def cycle(self, name: str, to: str, *, input: Expressions | None = None) -> str:  # noqa: A002
        """Goes back to a hook; `input` are variables that are other there."""
        return self._add(m.Cycle, name, {"input": input or {}}, to=to)

    def interrupt(self, name: str, **options: Unpack[InterruptOptions]) -> str:
        """Ends this run, or the one whose id is `target`."""
        return self._add(m.Interrupt, name, options)

    def aggregate(
        self,
        name: str,
        *,
        of: str,
        collect: Expression,
        into: str,
        job: Expressions | None = None,
    ) -> str:
        """Waits for all items of a spread, and collects one value of each."""
        given = {"collect": collect, "job": job or {}}
        return self._add(m.Aggregate, name, given, of=of, into=into)

    # Inline nodes

    def assign(self, name: str, variables: Expressions, *, job: Expressions | None = None) -> str:
        """Sets variables, one after the other."""
        self._words[name, "set"] = "variables"
        return self._add(m.Assign, name, {"set": variables, "job": job or {}})

    def branch(self, name: str) -> str:
        """Goes along the first of its edges whose condition holds."""
        return self._add(m.Branch, name, {})

    def spread(self, name: str, items: Expression, *, item: str, index: str | None = None) -> str:
        """Goes on for each item side by side, up to the aggregate."""
        return self._add(m.Spread, name, {"items": items}, item=item, index=index)

    def output(self, name: str, value: Expression) -> str:
        """What the run results in."""
        return self._add(m.Output, name, {"value": value})

    def fail(
        self,
        name: str,
        error: str | type[BaseException] = "",
        **options: Unpack[RaiseOptions],
    ) -> str:
        """Raises an error, or the one in the variable `again`: a raise."""
        given: dict[str, Any] = {**options}
        if "bases" in given:
            given["bases"] = tuple(given["bases"])
        return self._add(m.Raise, name, given, error=_error(error))

    def call(
        self,
        name: str,
        graph: GraphProgram[..., Any] | Graph | str,
        *,
        input: Expressions | None = None,  # noqa: A002
        output: Expressions | None = None,
    ) -> str:
        """Another graph, expanded in place."""
        given: dict[str, Any] = {"input": input or {}}
        if output is not None:
            given["output"] = output
        return self._add(m.Call, name, given, graph=_name_of(graph))

    # Edges

    def edge(self, source: str, target: str, **options: Unpack[EdgeOptions]) -> None:
        """From a node to the next: when it is done, or as `on` says, and if `when` holds."""
        when = options.get("when")
        place = f"edge {len(self._edges)}"
        self._edges.append(
            m.Edge(
                source,
                target,
                str(options.get("on", m.DONE)),
                None if when is None else self._expression(place, "when", when),
                tuple(map(_error, options.get("errors", ()))),
                options.get("bind"),
            )
        )

    def chain(self, *names: str) -> None:
        """An edge from each node to the next."""
        for source, target in pairwise(names):
            self.edge(source, target)

    def build(self) -> Graph:
        """The graph; `GraphInvalid` tells everything that is wrong with it."""
        graph = started(
            Graph(
                self._name,
                tuple(self._nodes),
                tuple(self._edges),
                self._version,
                self._input,
                self._output,
                self._source,
            )
        )
        problems = self._told([*problems_of(graph), *argument_problems(graph)])
        if problems:
            raise invalid(self._name, problems)
        return graph

    def _told(self, found: Iterable[Problem]) -> list[Problem]:
        """All problems, in the words of this builder. What could not be read is told, and not what stands for it."""
        unread = {(problem.node, problem.field) for problem in self._problems}
        others = (problem for problem in found if (problem.node, problem.field) not in unread)
        return [self._worded(problem) for problem in (*self._problems, *others)]

    def _worded(self, problem: Problem) -> Problem:
        field, dot, rest = problem.field.partition(".")
        word = self._words.get((problem.node, field), field)
        return msgspec.structs.replace(problem, field=f"{word}{dot}{rest}")

    def _add(
        self, kind: type[m.AnyNode], name: str, options: Mapping[str, Any], **fixed: Any
    ) -> str:
        given = {field: self._read(name, field, value) for field, value in options.items()}
        node: Any = kind
        self._nodes.append(node(name=name, **given, **fixed))
        return name

    def _read(self, node: str, field: str, value: Any) -> Any:
        if field in ARGUMENTS | VARIABLE_MAPS:
            return {
                name: self._expression(node, f"{field}.{name}", item)
                for name, item in value.items()
            }
        if field in EXPRESSIONS:
            is_absent = value is None and field in _OPTIONAL
            return None if is_absent else self._expression(node, field, value)
        return self._seconds(node, value) if field == "timeout" else value

    def _wait(self, node: str, word: str, value: Expression | timedelta) -> str:
        self._words[node, "sleep"] = word
        seconds = seconds_of(value) if isinstance(value, timedelta) else value
        return self._expression(node, "sleep", seconds)

    def _expression(self, node: str, field: str, value: Expression) -> str:
        if isinstance(value, str):
            return value
        try:
            return spelled(value)
        except ExpressionProblem as error:
            self._problems.append(Problem(node, field, error.what, error.remedy))
            return "None"

    def _seconds(self, node: str, value: Any) -> float | None:
        if isinstance(value, timedelta):
            return value.total_seconds()
        if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
            return None if value is None else float(value)
        what = f"{value!r:.80} is not a number of seconds"
        self._problems.append(Problem(node, "timeout", what, "pass a number, or a timedelta"))
        return None


def _name_of(thing: Any) -> str:
    name = thing if isinstance(thing, str) else getattr(thing, "name", None)
    if not isinstance(name, str):
        raise InputError(f"{thing!r} has no name", "pass a definition, or a name")
    return name


def _error(error: str | type[BaseException]) -> str:
    return error if isinstance(error, str) else f"{error.__module__}:{error.__qualname__}"


def _schema(part: str, fields: Mapping[str, FieldSpec] | None) -> dict[str, FieldType] | None:
    if fields is None:
        return None
    return {name: _field(f"{part}.{name}", spec) for name, spec in fields.items()}


def _field(place: str, spec: Any) -> FieldType:
    if isinstance(spec, FieldType):
        return spec
    kind = spec if spec in get_args(Type) else _TYPES.get(spec)
    if kind is None:
        known = ", ".join(get_args(Type))
        raise InputError(f"{spec!r} is no type for {place}", f"use one of {known}, or a FieldType")
    return FieldType(kind)
