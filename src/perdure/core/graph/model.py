"""The model of a graph: YAML, builder and decorator all produce it; it is checked and deployed.

A graph is nodes and edges. *Activities* have a ledger and are durable steps: trigger, worker, await, hook, signal,
cycle, interrupt, aggregate. The others are *inline*: they are evaluated in memory, in the transition that reaches
them: assign, branch, spread, output.

Data flows along the edges as a *scope* of variables. A run begins with the fields of its input as variables (and
`input`, all of them together); a node adds the variables of its `output`. Where paths join, their scopes are merged:
changes since the paths parted win, of several the one of the later edge. In `output`, `job` and the conditions of a
node's edges, `result` is the node's result, `code` the code of its response or error, and `error` the failure, if any,
as {"type": ..., "message": ...}. `job` is the run's own data, shared by all planes; every expression can read it, and
it is the run's result if there is no output. `params` are the parameters that the graph declares: every expression
can read their current values, which an operator may change.

Every expression is text in the subset of Python of `core/expressions`; names of variables are identifiers.
"""

from typing import Final, Literal

import msgspec

Maps = dict[str, str]
"""Expressions by name."""

DONE: Final = "done"
ERROR: Final = "error"
TIMEOUT: Final = "timeout"
PENDING: Final = "pending"


class RetryRule(msgspec.Struct, frozen=True, omit_defaults=True):
    """Attempts and backoff: of a worker, instead of its task's own policy, or of an await, with a new run each."""

    attempts: int = 1
    first: float = 1.0
    factor: float = 2.0
    ceiling: float = 60.0


class Node(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, tag_field="kind"):
    """One node. Its name is unique in the graph, and begins its step's id."""

    name: str


class TriggerNode(Node, frozen=True, tag="trigger"):
    """The start of a run: exactly one in a graph.

    `keys` are search keys, by which runs are found, counted and signalled together. `emit` is an expression whose value
    clients can read from the start of the run, as the published value `emitted`; with `persist` the run's
    job data is published too, as `job`.
    """

    keys: Maps = {}
    job: Maps = {}
    emit: str | None = None
    persist: bool = False


class WorkerNode(Node, frozen=True, tag="worker"):
    """Calls a task; `input` maps its arguments. With `pending` it may respond with 202 and again later.

    `task_from` is an expression for the task's name, in place of `task`. With `on_failure` "park" the activity waits
    for an operator when it has failed for good; without it the task decides.
    """

    task: str = ""
    task_from: str | None = None
    input: Maps = {}
    output: Maps | None = None
    job: Maps = {}
    retry: RetryRule | None = None
    timeout: float | None = None
    pending: bool = False
    on_failure: str | None = None


class AwaitNode(Node, frozen=True, tag="await"):
    """Starts another program, a workflow or a graph, as a child run.

    Without `wait` it responds at once with the id of the run, which is independent then. `retry` starts another run
    after a failed one. `program_from` is an expression for the program's name, in place of `program`.
    """

    program: str = ""
    program_from: str | None = None
    input: Maps = {}
    output: Maps | None = None
    job: Maps = {}
    wait: bool = True
    retry: RetryRule | None = None


class HookNode(Node, frozen=True, tag="hook"):
    """Waits: for a time, a signal, a signal but not longer than a time; or for nothing.

    `sleep` is an expression for seconds. `topic` names the signal. Without a `key` senders address the run; with one,
    topic and key, without knowing the run. With `cycle` the hook waits for nothing, and cycle activities return to
    it. With `pending` the hook takes signals with code 202 and stays open. `topic_from` is an
    expression for the topic, in place of `topic`.
    """

    sleep: str | None = None
    topic: str | None = None
    topic_from: str | None = None
    key: str | None = None
    output: Maps | None = None
    job: Maps = {}
    cycle: bool = False
    pending: bool = False


class SignalNode(Node, frozen=True, tag="signal"):
    """Sends a signal: to the hook that waits for `topic` and `key`; to the run with id `run`; or to every open run
    whose search key `all` has the value of `key`. With `scrub` later signals by that key do not find those runs;
    statistics still count them. `topic_from` is an expression for the topic, in
    place of `topic`.
    """

    topic: str = ""
    topic_from: str | None = None
    data: str = "None"
    key: str | None = None
    run: str | None = None
    all: str | None = None
    scrub: bool = False
    code: int = 200
    job: Maps = {}


class CycleNode(Node, frozen=True, tag="cycle"):
    """Returns to a hook, in a new plane. `input` maps the variables that change; the others have the values from when
    the hook was first passed."""

    to: str
    input: Maps = {}


class InterruptNode(Node, frozen=True, tag="interrupt"):
    """Ends a run: this one, or the one whose id is `target`.

    With `throw` the run fails with the code and the reason, else it is cancelled. With `descend` its children are
    cancelled too, else they continue.
    """

    target: str | None = None
    reason: str = "'interrupted'"
    throw: bool = True
    code: int = 410
    descend: bool = False
    job: Maps = {}


class AggregateNode(Node, frozen=True, tag="aggregate"):
    """Waits for every item of a spread. `collect` is evaluated for each item; `into` is the list of values,
    in the order of the items. Items whose paths were all skipped are left out."""

    of: str
    collect: str
    into: str
    job: Maps = {}


class AssignNode(Node, frozen=True, tag="assign"):
    """Sets variables, one after the other."""

    set: Maps
    job: Maps = {}


class BranchNode(Node, frozen=True, tag="branch"):
    """Takes the first of its edges whose condition holds."""


class SpreadNode(Node, frozen=True, tag="spread"):
    """Runs the nodes up to the aggregate once for each item, concurrently. Each has the variable `item`, and its number
    as `index`, if that is named."""

    items: str
    item: str
    index: str | None = None


class OutputNode(Node, frozen=True, tag="output"):
    """The result of the run. The first output that is reached counts; the run ends when all paths have ended."""

    value: str


class RaiseNode(Node, frozen=True, tag="raise"):
    """Raises the error of that name ('module:qualified.name') and message, or the error bound to the variable `again`.
    `bases` names the base types of a user error. The error follows the error edges, or the run fails."""

    error: str = ""
    message: str = "''"
    again: str | None = None
    bases: tuple[str, ...] = ()


class CallNode(Node, frozen=True, tag="call"):
    """Another graph, expanded in place: its nodes become `name/inner`. `result` is its output."""

    graph: str
    input: Maps = {}
    output: Maps | None = None


AnyNode = (
    TriggerNode
    | WorkerNode
    | AwaitNode
    | HookNode
    | SignalNode
    | CycleNode
    | InterruptNode
    | AggregateNode
    | AssignNode
    | BranchNode
    | SpreadNode
    | OutputNode
    | RaiseNode
    | CallNode
)

INLINE: Final = (AssignNode, BranchNode, SpreadNode, OutputNode, RaiseNode)


class Edge(msgspec.Struct, frozen=True, omit_defaults=True):
    """From a node to the next. It is taken if the node ended as `on` says and `when` holds.

    `on` is `done`, `error`, `timeout`, `pending` (a 202), or a response's code as digits. An error edge may be for
    some `errors` only, named as 'module:qualified.name'; 'builtins:' may be left out. Subclasses count. A node's
    edges of one kind are tried in order; an error follows only the first that matches. `bind` names
    a variable for the error, on edges for errors, timeouts and codes from 400 on.
    """

    source: str
    target: str
    on: str = DONE
    when: str | None = None
    errors: tuple[str, ...] = ()
    bind: str | None = None


Type = Literal["any", "str", "int", "float", "bool", "list", "dict", "none"]


class FieldType(msgspec.Struct, frozen=True, omit_defaults=True):
    """A field of a graph's input or output. A missing optional field has the value `default`."""

    type: Type = "any"
    required: bool = True
    default: bool | int | float | str | None = None


class Graph(msgspec.Struct, frozen=True, omit_defaults=True):
    """A graph as it is written, before it is checked. `input`, `output` and `params` are None if they are not declared.

    `source` says where it was written; it is not part of the digest. The run completes with the first step
    after which exactly `threshold` obligations are open, or none; steps still open are abandoned.
    """

    name: str
    nodes: tuple[AnyNode, ...]
    edges: tuple[Edge, ...]
    version: str = ""
    input: dict[str, FieldType] | None = None
    output: dict[str, FieldType] | None = None
    source: str = ""
    threshold: int = 0
    params: dict[str, FieldType] | None = None


class SourceLocation(msgspec.Struct, frozen=True, order=True):
    """A place in a source file: lines and columns count from 1. `file` is as the caller gave it."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class Problem(msgspec.Struct, frozen=True):
    """A problem of a graph, and its remedy. `node` and `field` say where: '' for the graph itself, `edge 3` for its
    fourth edge. `where` is the place in the source text, if there is one. `variable` is the variable in the field's
    expression that the problem is about, if any."""

    node: str
    field: str
    what: str
    remedy: str
    where: SourceLocation | None = None
    variable: str = ""

    def __str__(self) -> str:
        place = f"{self.node}.{self.field}" if self.node and self.field else self.node or self.field
        text = f"{place}: {self.what}; {self.remedy}" if place else f"{self.what}; {self.remedy}"
        return text if self.where is None else f"{self.where}: {text}"
