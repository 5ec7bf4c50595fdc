"""An executable graph: vertices and arrows. The kinds of nodes are gone.

A vertex is an *activity*, lowered to one of six primitives, or *inline*. Its address is its name and a number
for each activity on the path to it. All numbers are 0 except those of *planes*. A vertex opens planes if the vertices
behind it may run more than once: a hook that a cycle returns to, a step that responds more than once, a spread. Its
number counts these repetitions. A plane is thus the tuple of the numbers of the openers around a vertex, outermost
first; planes never share ledgers, scopes or joins.
"""

from enum import Enum
from typing import Final, TypeAlias

import msgspec

from perdure.core.expressions import Expression
from perdure.core.graph.model import RetryRule
from perdure.core.ids import StepId

Plane: TypeAlias = tuple[int, ...]
Mapped: TypeAlias = tuple[tuple[str, Expression], ...]

NO_PLANE: Final[Plane] = ()


class Primitive(Enum):
    """What the engine does for an activity."""

    RESPOND_LATER = "respond later"
    """Send a request (leg 1), take the response (leg 2): a task, a child run, a timer, a signal."""

    PASS_THROUGH = "pass through"  # noqa: S105 - no password
    """Continue at once."""

    SEND = "send"
    """Send messages to other runs, and continue at once."""

    RE_ENTER = "re-enter"
    """Return to a hook."""

    BARRIER = "barrier"
    """Continue when all items of a spread have arrived."""

    END = "end"
    """End this run."""


class Inline(Enum):
    """What is evaluated in memory, between activities."""

    ASSIGN = "assign"
    BRANCH = "branch"
    SPREAD = "spread"
    OUTPUT = "output"
    RAISE = "raise"


# Requests


class TaskRequest(msgspec.Struct, frozen=True):
    """`named_by`, here and below, is the expression for a computed name."""

    task: str
    retry: RetryRule | None = None
    timeout: float | None = None
    named_by: Expression | None = None
    on_failure: str | None = None


class ChildRequest(msgspec.Struct, frozen=True):
    program: str
    waits: bool = True
    retry: RetryRule | None = None
    named_by: Expression | None = None


class TimerRequest(msgspec.Struct, frozen=True):
    seconds: Expression


class SignalRequest(msgspec.Struct, frozen=True):
    """With `key` the signal is addressed to topic and key, else to the run; `timeout` is in seconds."""

    topic: str
    key: Expression | None = None
    timeout: Expression | None = None
    named_by: Expression | None = None


Request = TaskRequest | ChildRequest | TimerRequest | SignalRequest


# Messages to other runs


class ToTopic(msgspec.Struct, frozen=True):
    """To the hook that waits for topic and key, now or later."""

    topic: str
    key: Expression
    data: Expression
    code: int
    named_by: Expression | None = None


class ToRun(msgspec.Struct, frozen=True):
    topic: str
    run: Expression
    data: Expression
    code: int
    named_by: Expression | None = None


class ToAll(msgspec.Struct, frozen=True):
    """To every open run with that value of a search key."""

    topic: str
    name: str
    key: Expression
    data: Expression
    code: int
    scrubs: bool
    named_by: Expression | None = None


class Stop(msgspec.Struct, frozen=True):
    """Ends the run `target`, or this one."""

    target: Expression | None
    reason: Expression
    throws: bool
    code: int
    descends: bool


SendRequest = ToTopic | ToRun | ToAll | Stop


class RaisedError(msgspec.Struct, frozen=True):
    """What a raise vertex raises: an error by name, or the error bound to the variable `again`."""

    error: str
    message: Expression | None
    again: str | None
    bases: tuple[str, ...] = ()


class Arrow:
    """An edge, with precomputed data for transitions."""

    __slots__ = (
        "bind",
        "errors",
        "keeps",
        "leaves",
        "on",
        "order",
        "since",
        "source",
        "target",
        "variables",
        "when",
    )

    def __init__(
        self,
        source: "Vertex",
        target: "Vertex",
        on: str,
        when: Expression | None,
        errors: tuple[str, ...],
        bind: str | None,
    ) -> None:
        self.source = source
        self.target = target
        self.on = on
        self.when = when
        self.errors = errors
        self.bind = bind
        self.order = 0
        """Its number among the arrows to its target."""
        self.leaves: tuple[Vertex, ...] = ()
        """The hooks of the loops that it leaves, innermost first."""
        self.variables: frozenset[str] = frozenset()
        """Variables that may be set between the vertex where the paths part and the join at its target."""
        self.keeps: str | None = None
        """If paths that part here may set the same variable: the key under which the scope from before is kept."""
        self.since: str | None = None
        """At a join: the key of the scope from before the paths parted."""


class Vertex:
    """A node of an executable graph. Fields that do not apply are empty."""

    __slots__ = (
        "_segments",
        "again",
        "aggregate",
        "arguments",
        "arrows",
        "assigns",
        "collect",
        "cycles",
        "decides",
        "depth",
        "exits",
        "fault",
        "index",
        "inline",
        "into",
        "is_reentrant",
        "item",
        "item_index",
        "items",
        "job",
        "name",
        "needs",
        "opens_planes",
        "output",
        "positions",
        "primitive",
        "request",
        "required",
        "returns_to",
        "sending",
        "spread",
        "value",
    )

    def __init__(self, index: int, name: str) -> None:
        self.index = index
        self.name = name
        self.primitive: Primitive | None = None
        self.inline: Inline | None = None
        self.arrows: list[Arrow] = []
        self.required = 0
        """Number of arrows to it; for an aggregate, for each item."""
        self.depth = 0
        self.positions: tuple[int, ...] = ()
        """Positions of its plane's numbers in its address."""
        self.opens_planes = False
        self.is_reentrant = False
        """Whether cycle activities return to it, so that it is never finalized."""
        self.needs: frozenset[str] = frozenset()
        """Variables that it or anything after it reads."""
        self.arguments: Mapped = ()
        self.output: Mapped | None = None
        """None: the result is a variable of the vertex's name."""
        self.job: Mapped = ()
        self.request: Request | None = None
        self.sending: SendRequest | None = None
        self.returns_to: Vertex | None = None
        self.cycles = self.exits = 0
        """For a hook: the cycle activities that decide whether its loop repeats, and the arrows out of the loop."""
        self.decides: tuple[Vertex, ...] = ()
        """For a cycle activity: the hooks of the loops that it helps to decide."""
        self.again: tuple[tuple[Vertex, int, int], ...] = ()
        """For a vertex that opens planes: the hooks of the loops around it, with the number of their cycle activities
        and exits in one plane."""
        self.assigns: Mapped = ()
        self.items: Expression | None = None
        self.item = ""
        self.item_index: str | None = None
        self.aggregate: Vertex | None = None
        self.spread: Vertex | None = None
        self.collect: Expression | None = None
        self.into = ""
        self.value: Expression | None = None
        self.fault: RaisedError | None = None
        self._segments: tuple[str, ...] = ()

    def place(self, depth: int, positions: tuple[int, ...]) -> None:
        """Set its depth and positions, and prepare its address."""
        self.depth = depth
        self.positions = positions
        segments = [self.name]
        for position in range(depth + 1):
            if position in positions:
                segments[-1] += ","
                segments.append("")
            else:
                segments[-1] += ",0"
        self._segments = tuple(segments)

    def step(self, plane: Plane) -> StepId:
        """Its step id in a plane: name and address."""
        segments = self._segments
        if len(segments) == 1:
            return StepId(segments[0])
        if len(segments) == 2:
            return StepId(f"{segments[0]}{plane[0]}{segments[1]}")
        parts = [segments[0]]
        for number, segment in zip(plane, segments[1:], strict=True):
            parts.append(f"{number}{segment}")
        return StepId("".join(parts))

    def __repr__(self) -> str:
        return f"<vertex {self.name!r}>"


class Lowered(msgspec.Struct, frozen=True):
    """An executable graph."""

    name: str
    trigger: Vertex
    vertices: tuple[Vertex, ...]
    keys: Mapped = ()
    emit: Expression | None = None
    persists: bool = False
    threshold: int = 0

    def find(self, name: str) -> Vertex | None:
        return next((vertex for vertex in self.vertices if vertex.name == name), None)
