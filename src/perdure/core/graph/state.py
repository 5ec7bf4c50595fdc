"""What a graph run knows beside its open steps: joins that wait, loops under way, the job's data, the output."""

from typing import Any, Final, TypeAlias

from perdure.core.graph.trouble import Trouble
from perdure.core.graph.vertex import Arrow, Plane
from perdure.core.ids import StepId

Scope: TypeAlias = dict[str, Any]
"""Variables, as one path sees them. Never changed: each step makes its own."""

NO_OUTPUT: Final = object()


class Join:
    """A vertex in a plane that some of its arrows have reached. `scope` is what a spread began with."""

    __slots__ = (
        "held",
        "items",
        "parts",
        "required",
        "resolved",
        "scope",
        "scopes",
        "told",
        "trouble",
    )

    def __init__(self, required: int, scope: Scope | None = None) -> None:
        self.required = required
        self.resolved = 0
        self.told = 0
        """How many of them the index knows of: what may yet be taken back is not told."""
        self.scopes: dict[int, tuple[Arrow, Scope]] = {}
        """Of the arrows that were taken."""
        self.held: tuple[Loop, ...] = ()
        """Turns of loops that skipped arrows led out of."""
        self.parts: dict[int, Join] = {}
        """Of a spread: items that some of their arrows have brought to the end."""
        self.items: dict[int, tuple[str, Any]] = {}
        """What the items of a spread came to, each with the vertex that it came from last."""
        self.scope: Scope = scope or {}
        self.trouble: Trouble | None = None
        """Of a spread: why an item has come to nothing."""


class Loop:
    """One turn of a loop: whether it goes round again is decided by its cycle activities, and by those of loops
    inside it, which bring more of its own."""

    __slots__ = ("has_turned", "held", "undecided", "unresolved")

    def __init__(self, cycles: int, exits: int) -> None:
        self.undecided = cycles
        self.unresolved = exits
        """Arrows out of it of which it is not known whether they are taken."""
        self.has_turned = False
        self.held: list[tuple[StepId, tuple[Loop, ...]]] = []
        """Steps behind it that were skipped: told if it does not turn."""


class CycleHook:
    """A hook in a plane, as long as a cycle activity may come back to it."""

    __slots__ = ("entries", "scope", "undecided")

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        """What it began with."""
        self.entries = 1
        self.undecided = 1
        """Turns, those that are to begin among them, of which it is not known whether they come back."""


class GraphState:
    """One run's. It is a fold of the journal's facts: whoever replays them gets the same."""

    __slots__ = ("hooks", "job", "joins", "loops", "result", "semaphore")

    def __init__(self) -> None:
        self.joins: dict[tuple[int, Plane], Join] = {}
        self.loops: dict[tuple[int, Plane], Loop] = {}
        self.hooks: dict[tuple[int, Plane], CycleHook] = {}
        self.job: dict[str, Any] = {}
        self.result: Any = NO_OUTPUT
        self.semaphore = 0

    def output(self, value: Any) -> None:
        """The first that is reached counts."""
        if self.result is NO_OUTPUT:
            self.result = value

    @property
    def outcome(self) -> Any:
        """What the run returns: its output, else what its steps said of the job."""
        if self.result is not NO_OUTPUT:
            return self.result
        return self.job or None
