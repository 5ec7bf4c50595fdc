"""A graph as it is executed: vertices and arrows, and what each vertex asks for. No source kind is left.

A vertex is an *activity*, lowered to one of six primitives, or *inline*. Its address tells its place: the activity's
name and a number for each activity on the way to it. All numbers are 0 but those of *planes*. A place opens planes if
what follows it may happen more than once: a hook that is cycled back to, a step that responds more than once, a spread.
The number there says which time it is. So a plane is the numbers of the places around a vertex, from
the outermost; the ledgers, scopes and joins of two planes never meet.
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
    """All that the engine can do for an activity."""

    RESPOND_LATER = "respond later"
    """Ask somebody (leg 1), take the answer (leg 2): a task, a child run, a timer, a signal."""

    PASS_THROUGH = "pass through"  # noqa: S105 - no password
    """Go on at once."""

    SEND = "send"
    """Tell other runs something, and go on at once."""

    RE_ENTER = "re-enter"
    """Go back to a place that was passed before."""

    BARRIER = "barrier"
    """Go on when all items of a spread are through."""

    END = "end"
    """End this run."""


class Inline(Enum):
    """What is evaluated in memory, on the way to the next activities."""

    ASSIGN = "assign"
    BRANCH = "branch"
    SPREAD = "spread"
    OUTPUT = "output"
    RAISE = "raise"


# What somebody is asked for


class TaskRequest(msgspec.Struct, frozen=True):
    task: str
    retry: RetryRule | None = None
    timeout: float | None = None


class ChildRequest(msgspec.Struct, frozen=True):
    program: str
    waits: bool = True


class TimerRequest(msgspec.Struct, frozen=True):
    seconds: Expression


class SignalRequest(msgspec.Struct, frozen=True):
    """`key` makes it one that is sent to topic and key; `timeout` is in seconds."""

    topic: str
    key: Expression | None = None
    timeout: Expression | None = None


Request = TaskRequest | ChildRequest | TimerRequest | SignalRequest


# What others are told


class ToTopic(msgspec.Struct, frozen=True):
    """Whoever waits for topic and key, now or later."""

    topic: str
    key: Expression
    data: Expression
    code: int


class ToRun(msgspec.Struct, frozen=True):
    topic: str
    run: Expression
    data: Expression
    code: int


class ToAll(msgspec.Struct, frozen=True):
    """Every open run with that value of a search key."""

    topic: str
    name: str
    key: Expression
    data: Expression
    code: int
    scrubs: bool


class Stop(msgspec.Struct, frozen=True):
    """Ends a run: another one by `target`, or this one."""

    target: Expression | None
    reason: Expression
    throws: bool
    code: int
    descends: bool


Sending = ToTopic | ToRun | ToAll | Stop


class Fault(msgspec.Struct, frozen=True):
    """What an inline vertex raises: an error by its name, or one that was bound to a variable, `again`."""

    error: str
    message: Expression | None
    again: str | None
    bases: tuple[str, ...] = ()


class Arrow:
    """An edge, with what a transition needs to know of it."""

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
        """Its number among those that lead to its target."""
        self.leaves: tuple[Vertex, ...] = ()
        """The hooks whose loops it leads out of, from the innermost."""
        self.variables: frozenset[str] = frozenset()
        """What may be set on the way, since the paths parted that its target joins."""
        self.keeps: str | None = None
        """The name under which the scope that it begins with goes along: paths that part here may set the same."""
        self.since: str | None = None
        """The name that such a scope has where they join."""


class Vertex:
    """A node of an executable graph. What it does not have is empty."""

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
        """How many arrows lead to it; of an aggregate, for each item."""
        self.depth = 0
        self.positions: tuple[int, ...] = ()
        """Where in its address the numbers of its plane stand."""
        self.opens_planes = False
        self.is_reentrant = False
        """Whether it takes more than one answer, and is never finalized."""
        self.needs: frozenset[str] = frozenset()
        """Variables that it or anything after it reads."""
        self.arguments: Mapped = ()
        self.output: Mapped | None = None
        """None: the result is a variable of the vertex's name."""
        self.job: Mapped = ()
        self.request: Request | None = None
        self.sending: Sending | None = None
        self.returns_to: Vertex | None = None
        self.cycles = self.exits = 0
        """How many cycle activities decide about a turn of its loop, and how many arrows lead out of that."""
        self.decides: tuple[Vertex, ...] = ()
        """Of a cycle activity: the hooks of the loops about whose turns it decides."""
        self.again: tuple[tuple[Vertex, int, int], ...] = ()
        """The hooks of loops around a place that opens planes, with how many cycle activities and exits of theirs
        each plane brings."""
        self.assigns: Mapped = ()
        self.items: Expression | None = None
        self.item = ""
        self.item_index: str | None = None
        self.aggregate: Vertex | None = None
        self.spread: Vertex | None = None
        self.collect: Expression | None = None
        self.into = ""
        self.value: Expression | None = None
        self.fault: Fault | None = None
        self._segments: tuple[str, ...] = ()

    def place(self, depth: int, positions: tuple[int, ...]) -> None:
        """Say where it stands; its address is prepared then."""
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
        """Its id in a plane: name and address."""
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

    def find(self, name: str) -> Vertex | None:
        return next((vertex for vertex in self.vertices if vertex.name == name), None)
