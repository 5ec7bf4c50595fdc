"""The model of a graph: what every way of writing one leads to, what is deployed, and what is checked.

A graph is nodes and edges. *Activities* have a ledger and are durable steps: trigger, worker, await, hook, signal,
cycle, interrupt, aggregate. The others are *inline*: they are evaluated in memory, in the transition that reaches
them: assign, branch, spread, output.

Data flows along the edges as a *scope* of variables. A run begins with the fields of its input as variables (and
`input`, all of them at once); a node adds what its `output` maps; where paths join, their scopes do: what each path
changed since they parted counts, that of the later edge last. Inside `output`, `job` and the conditions of a node's
edges, `result` is what it responded with, `code` the response's code (or the error's) and `error` the failure, if that
is what it was, as {"type": ..., "message": ...}. `job` is the run's own data, one for all planes: whatever maps to it
is visible everywhere as `job`, and it is the run's result if there is no output.

Every expression is text in the subset of Python of `core/expressions`; names of variables are identifiers.
"""

from typing import Final, Literal

import msgspec

Maps = dict[str, str]
"""Names and the expressions that they get their values from."""

DONE: Final = "done"
ERROR: Final = "error"
TIMEOUT: Final = "timeout"
PENDING: Final = "pending"


class RetryRule(msgspec.Struct, frozen=True, omit_defaults=True):
    """How often and how patiently a worker's failed attempts are repeated; instead of its task's own rule."""

    attempts: int = 1
    first: float = 1.0
    factor: float = 2.0
    ceiling: float = 60.0


class Node(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, tag_field="kind"):
    """One node. Its name is unique in the graph, and begins its step's id."""

    name: str


class Trigger(Node, frozen=True, tag="trigger"):
    """Where a run begins: exactly one in a graph.

    `keys` are search keys: by them runs are found, counted, and signalled together. `emit` is an expression whose value
    clients may read from the birth of the run on, as the published value `emitted`; with `persist` the run's
    job data is published too, as `job`.
    """

    keys: Maps = {}
    job: Maps = {}
    emit: str | None = None
    persist: bool = False


class Worker(Node, frozen=True, tag="worker"):
    """Calls a task; `input` maps its arguments. `pending` says that it may respond with 202 and again later."""

    task: str
    input: Maps = {}
    output: Maps | None = None
    job: Maps = {}
    retry: RetryRule | None = None
    timeout: float | None = None
    pending: bool = False


class Await(Node, frozen=True, tag="await"):
    """Starts another program, a workflow or a graph, as a child run.

    Without `wait` it responds at once, with the id of the run, which is on its own then.
    """

    program: str
    input: Maps = {}
    output: Maps | None = None
    job: Maps = {}
    wait: bool = True


class Hook(Node, frozen=True, tag="hook"):
    """Waits: for a time, a signal, a signal but not longer than a time; or for nothing.

    `sleep` is an expression for seconds. `topic` names the signal. Without a `key` it is sent to the run; with one,
    to topic and key, by somebody who does not know the run. `cycle` makes one that waits for nothing a place that cycle
    activities return to. `pending` says that signals with code 202 are taken, and the hook stays.
    """

    sleep: str | None = None
    topic: str | None = None
    key: str | None = None
    output: Maps | None = None
    job: Maps = {}
    cycle: bool = False
    pending: bool = False


class Signal(Node, frozen=True, tag="signal"):
    """Sends a signal: to who waits for `topic` and `key`; to the run whose id is `run`; or to every open run whose
    search key `all` has the value of `key`. `scrub` takes those runs out of the index of that key.
    """

    topic: str
    data: str = "None"
    key: str | None = None
    run: str | None = None
    all: str | None = None
    scrub: bool = False
    code: int = 200
    job: Maps = {}


class Cycle(Node, frozen=True, tag="cycle"):
    """Goes back to a hook, in a new dimension. `input` maps variables that are other there; the rest is as it was
    when the hook was first passed."""

    to: str
    input: Maps = {}


class Interrupt(Node, frozen=True, tag="interrupt"):
    """Ends a run: this one, or the one whose id is `target`.

    With `throw` the run fails with the code and the reason, else it is cancelled. With `descend` its children are
    cancelled too, else they are left alone.
    """

    target: str | None = None
    reason: str = "'interrupted'"
    throw: bool = True
    code: int = 410
    descend: bool = False
    job: Maps = {}


class Aggregate(Node, frozen=True, tag="aggregate"):
    """Waits for every item of a spread. `collect` is evaluated for each, where its paths join; the values are in the
    order of the items, as the variable `into`. Items whose every path was skipped are left out."""

    of: str
    collect: str
    into: str
    job: Maps = {}


class Assign(Node, frozen=True, tag="assign"):
    """Sets variables, one after the other."""

    set: Maps
    job: Maps = {}


class Branch(Node, frozen=True, tag="branch"):
    """Goes one way: along the first of its edges whose condition holds."""


class Spread(Node, frozen=True, tag="spread"):
    """Goes on once for each item, side by side, up to the aggregate. Each has `item` as a variable of its own, and its
    number as `index`, if that is named."""

    items: str
    item: str
    index: str | None = None


class Output(Node, frozen=True, tag="output"):
    """What the run results in. The first that is reached counts; the run ends when all paths have."""

    value: str


class Raise(Node, frozen=True, tag="raise"):
    """Fails: with the error of that name ('module:qualified.name') and message, or, `again`, with the one that is
    bound to that variable. `bases` names the types above an error of the user's. It goes along the error edges, or
    the run fails."""

    error: str = ""
    message: str = "''"
    again: str | None = None
    bases: tuple[str, ...] = ()


class Call(Node, frozen=True, tag="call"):
    """Another graph, expanded in place: its nodes become `name/inner`. What it outputs is `result` here."""

    graph: str
    input: Maps = {}
    output: Maps | None = None


AnyNode = (
    Trigger
    | Worker
    | Await
    | Hook
    | Signal
    | Cycle
    | Interrupt
    | Aggregate
    | Assign
    | Branch
    | Spread
    | Output
    | Raise
    | Call
)

INLINE: Final = (Assign, Branch, Spread, Output, Raise)


class Edge(msgspec.Struct, frozen=True, omit_defaults=True):
    """From a node to the next. It is taken if the node ended so, and `when` holds.

    `on` is `done`, `error`, `timeout`, `pending` (a 202), or a response's code as digits. An error edge may be for
    some `errors` only, named as 'module:qualified.name'; 'builtins:' may be left out. Subclasses count. A node's
    edges of one kind are judged in their order; an error goes along the first that fits and no other. `bind` names
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
    """A field of a graph's input or output. One that is not required is `default` if it is missing."""

    type: Type = "any"
    required: bool = True
    default: bool | int | float | str | None = None


class Graph(msgspec.Struct, frozen=True, omit_defaults=True):
    """A graph as it is written, before it is checked. `input` and `output` are None if nothing is said of them.

    `source` says where it was written, for people; it is no part of the digest.
    """

    name: str
    nodes: tuple[AnyNode, ...]
    edges: tuple[Edge, ...]
    version: str = ""
    input: dict[str, FieldType] | None = None
    output: dict[str, FieldType] | None = None
    source: str = ""


class Place(msgspec.Struct, frozen=True, order=True):
    """Where something is written: lines and columns count from 1. `file` is as it was given."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class Problem(msgspec.Struct, frozen=True):
    """What is wrong with a graph, where, and what to do. `node` and `field` lead to the place: '' for the graph
    itself, `edge 3` for its fourth edge. `where` is the place in the text, if the graph was one. `variable` is the one
    in the field's expression that it is about, if it is about one."""

    node: str
    field: str
    what: str
    remedy: str
    where: Place | None = None
    variable: str = ""

    def __str__(self) -> str:
        place = f"{self.node}.{self.field}" if self.node and self.field else self.node or self.field
        told = f"{place}: {self.what}; {self.remedy}" if place else f"{self.what}; {self.remedy}"
        return told if self.where is None else f"{self.where}: {told}"
