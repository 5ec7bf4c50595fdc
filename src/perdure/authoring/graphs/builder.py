"""Builds graphs in Python, with a method for each kind of node."""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from itertools import pairwise
from types import NoneType
from typing import Any, Final, TypeAlias, TypedDict, Unpack, get_args

import msgspec

from perdure.authoring.durations import Duration
from perdure.authoring.graphs.arguments import argument_problems
from perdure.authoring.graphs.program import GraphProgram
from perdure.authoring.graphs.values import Computed, seconds_of, spelled
from perdure.authoring.modules import type_name
from perdure.authoring.program import Program
from perdure.authoring.signal import Signal
from perdure.authoring.task import OnFailure, Task
from perdure.core.errors import ExpressionProblem, InputError
from perdure.core.graph import model as m
from perdure.core.graph.checking import invalid, problems_of
from perdure.core.graph.fields import ARGUMENTS, EXPRESSIONS, SHADOWED, VARIABLE_MAPS
from perdure.core.graph.model import FieldType, Graph, Problem, RetryRule, Type
from perdure.core.graph.starting import with_trigger
from perdure.core.graph.suggestions import did_you_mean

ExpressionLike: TypeAlias = str | int | float | bool | None
"""Text is an expression in the Python subset of graphs; any other value stands for itself."""

ExpressionMap: TypeAlias = Mapping[str, ExpressionLike]
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
"""Optional expressions: None means that there is none, not the value None."""


class TriggerOptions(TypedDict, total=False):
    keys: ExpressionMap
    job: ExpressionMap
    emit: ExpressionLike
    persist: bool


class ResponseOptions(TypedDict, total=False):
    """Options of all nodes with a result. Without `output` the result is a variable with the node's name."""

    output: ExpressionMap
    job: ExpressionMap


class WorkerOptions(ResponseOptions, total=False):
    input: ExpressionMap
    retry: RetryRule
    timeout: Duration
    pending: bool
    on_failure: OnFailure


class AwaitOptions(ResponseOptions, total=False):
    input: ExpressionMap
    wait: bool
    retry: RetryRule


class HookOptions(ResponseOptions, total=False):
    key: ExpressionLike
    timeout: ExpressionLike | timedelta
    cycle: bool
    pending: bool


class SignalOptions(TypedDict, total=False):
    data: ExpressionLike
    key: ExpressionLike
    run: ExpressionLike
    all: str
    scrub: bool
    code: int
    job: ExpressionMap


class InterruptOptions(TypedDict, total=False):
    target: ExpressionLike
    reason: ExpressionLike
    throw: bool
    code: int
    descend: bool
    job: ExpressionMap


class RaiseOptions(TypedDict, total=False):
    message: ExpressionLike
    again: str
    bases: Iterable[str]


class EdgeOptions(TypedDict, total=False):
    on: str | int
    when: ExpressionLike
    errors: Iterable[str | type[BaseException]]
    bind: str


class Inputs:
    """The fields of a graph's input. Each attribute is the expression that reads the field."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = tuple(names)

    def __getattr__(self, name: str) -> str:
        if name in self._names:
            return f"input.{name}" if name in SHADOWED else name
        remedy = did_you_mean(name, self._names, f"it has {', '.join(self._names) or 'none'}")
        raise AttributeError(f"the graph's input has no field {name!r}: {remedy}")

    def __dir__(self) -> list[str]:
        return list(self._names)


class GraphBuilder:
    """Collects nodes and edges; `build` checks them and returns the graph.

    Every method that adds a node returns the node's name. Expressions are texts; a literal text is its `repr`.
    """

    def __init__(
        self,
        name: str,
        *,
        version: str = "",
        input: Mapping[str, FieldSpec] | None = None,  # noqa: A002 - the term of graphs
        output: Mapping[str, FieldSpec] | None = None,
        source: str = "",
        threshold: int = 0,
        params: Mapping[str, FieldType] | None = None,
    ) -> None:
        self._name = name
        self._threshold = threshold
        self._version = version
        self._input = _schema("input", input)
        self._output = _schema("output", output)
        self._params = _schema("params", params)
        self._source = source
        self._nodes: list[m.AnyNode] = []
        self._edges: list[m.Edge] = []
        self._problems: list[Problem] = []
        self._words: dict[tuple[str, str], str] = {}
        """The builder's name of a field, by node and field of the model, where the two differ."""
        self.input = Inputs(self._input or ())

    @staticmethod
    def computed(expression: str) -> Computed:
        """A task, program or topic whose name the expression computes when the run reaches the node."""
        return Computed(expression)

    # Activities

    def trigger(self, name: str = "start", **options: Unpack[TriggerOptions]) -> str:
        """The start of a run. Without a trigger, a run starts at every node without incoming edges."""
        return self._add(m.TriggerNode, name, options)

    def worker(
        self, name: str, task: Task[..., Any] | Computed | str, **options: Unpack[WorkerOptions]
    ) -> str:
        """Calls a task, with `input` as its arguments."""
        return self._add(m.WorkerNode, name, options, **_named("task", task))

    def wait_for(
        self,
        name: str,
        program: Program[..., Any] | Computed | str,
        **options: Unpack[AwaitOptions],
    ) -> str:
        """Starts another program as a child run, and waits for it (an await node)."""
        return self._add(m.AwaitNode, name, options, **_named("program", program))

    def hook(
        self,
        name: str,
        topic: Signal[Any] | Computed | str | None = None,
        **options: Unpack[HookOptions],
    ) -> str:
        """Waits for a signal, up to `timeout` seconds; without a topic, not at all. `cycle`: cycles may return here."""
        given: dict[str, Any] = {**options}
        limit = given.pop("timeout", None)
        sleep = None if limit is None else self._wait(name, "timeout", limit)
        named = {} if topic is None else _named("topic", topic)
        return self._add(m.HookNode, name, given, **named, sleep=sleep)

    def sleep(
        self, name: str, seconds: ExpressionLike | timedelta, **options: Unpack[ResponseOptions]
    ) -> str:
        """Waits for a time."""
        return self._add(m.HookNode, name, options, sleep=self._wait(name, "seconds", seconds))

    def signal(
        self, name: str, topic: Signal[Any] | Computed | str, **options: Unpack[SignalOptions]
    ) -> str:
        """Sends a signal: by `key`, to a `run`, or to all runs whose search key `all` equals `key`."""
        return self._add(m.SignalNode, name, options, **_named("topic", topic))

    def cycle(self, name: str, to: str, *, input: ExpressionMap | None = None) -> str:  # noqa: A002
        """Returns to a hook; `input` sets variables for the next pass."""
        return self._add(m.CycleNode, name, {"input": input or {}}, to=to)

    def interrupt(self, name: str, **options: Unpack[InterruptOptions]) -> str:
        """Ends this run, or the one whose id is `target`."""
        return self._add(m.InterruptNode, name, options)

    def aggregate(
        self,
        name: str,
        *,
        of: str,
        collect: ExpressionLike,
        into: str,
        job: ExpressionMap | None = None,
    ) -> str:
        """Waits for all items of a spread, and collects one value from each."""
        given = {"collect": collect, "job": job or {}}
        return self._add(m.AggregateNode, name, given, of=of, into=into)

    # Inline nodes

    def assign(
        self, name: str, variables: ExpressionMap, *, job: ExpressionMap | None = None
    ) -> str:
        """Sets variables in the order given."""
        self._words[name, "set"] = "variables"
        return self._add(m.AssignNode, name, {"set": variables, "job": job or {}})

    def branch(self, name: str) -> str:
        """Follows the first outgoing edge whose condition holds."""
        return self._add(m.BranchNode, name, {})

    def spread(
        self, name: str, items: ExpressionLike, *, item: str, index: str | None = None
    ) -> str:
        """Runs the following nodes for each item in parallel, up to the aggregate."""
        return self._add(m.SpreadNode, name, {"items": items}, item=item, index=index)

    def output(self, name: str, value: ExpressionLike) -> str:
        """Sets the result of the run."""
        return self._add(m.OutputNode, name, {"value": value})

    def fail(
        self,
        name: str,
        error: str | type[BaseException] = "",
        **options: Unpack[RaiseOptions],
    ) -> str:
        """Raises an error, or the error in the variable `again` (a raise node)."""
        given: dict[str, Any] = {**options}
        if "bases" in given:
            given["bases"] = tuple(given["bases"])
        return self._add(m.RaiseNode, name, given, error=_error(error))

    def call(
        self,
        name: str,
        graph: GraphProgram[..., Any] | Graph | str,
        *,
        input: ExpressionMap | None = None,  # noqa: A002
        output: ExpressionMap | None = None,
    ) -> str:
        """Calls another graph, which is expanded in place."""
        given: dict[str, Any] = {"input": input or {}}
        if output is not None:
            given["output"] = output
        return self._add(m.CallNode, name, given, graph=_name_of(graph))

    # Edges

    def edge(self, source: str, target: str, **options: Unpack[EdgeOptions]) -> None:
        """Connects two nodes. The run follows the edge on the outcome `on` (by default, done) if `when` holds."""
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
        """Connects each node to the next."""
        for source, target in pairwise(names):
            self.edge(source, target)

    def build(self) -> Graph:
        """The checked graph. `GraphInvalid` lists all problems."""
        graph = with_trigger(
            Graph(
                self._name,
                tuple(self._nodes),
                tuple(self._edges),
                self._version,
                self._input,
                self._output,
                self._source,
                self._threshold,
                self._params,
            )
        )
        problems = self._reported([*problems_of(graph), *argument_problems(graph)])
        if problems:
            raise invalid(self._name, problems)
        return graph

    def _reported(self, found: Iterable[Problem]) -> list[Problem]:
        """All problems, with the builder's field names. Of an unreadable field only the first problem is reported."""
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

    def _wait(self, node: str, word: str, value: ExpressionLike | timedelta) -> str:
        self._words[node, "sleep"] = word
        seconds = seconds_of(value) if isinstance(value, timedelta) else value
        return self._expression(node, "sleep", seconds)

    def _expression(self, node: str, field: str, value: ExpressionLike) -> str:
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


def _named(field: str, thing: Any) -> dict[str, str]:
    """The node field that names the task, program or topic."""
    return (
        {f"{field}_from": thing.text} if isinstance(thing, Computed) else {field: _name_of(thing)}
    )


def _name_of(thing: Any) -> str:
    name = thing if isinstance(thing, str) else getattr(thing, "name", None)
    if not isinstance(name, str):
        raise InputError(f"{thing!r} has no name", "pass a definition, or a name")
    return name


def _error(error: str | type[BaseException]) -> str:
    return error if isinstance(error, str) else type_name(error)


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
