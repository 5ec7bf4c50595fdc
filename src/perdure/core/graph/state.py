"""State of a graph run beside its open steps: waiting joins, loop iterations, job data, the output."""

from typing import Any, Final, TypeAlias

from perdure.core.graph.step_error import StepError
from perdure.core.graph.vertex import Arrow, Plane, Vertex
from perdure.core.ids import StepId

VariableScope: TypeAlias = dict[str, Any]
"""The variables of one path. Immutable by convention: each step makes a new one."""

NO_OUTPUT: Final = object()


class Join:
    """A vertex in a plane, some of whose arrows are resolved. `scope` is the scope in front of a spread."""

    __slots__ = (
        "error",
        "held",
        "indexed",
        "items",
        "parts",
        "required",
        "resolved",
        "scope",
        "scopes",
    )

    def __init__(self, required: int, scope: VariableScope | None = None) -> None:
        self.required = required
        self.resolved = 0
        self.indexed = 0
        """How many resolved arrows the index has. Skips that a repeating loop may revoke are not indexed."""
        self.scopes: dict[int, tuple[Arrow, VariableScope]] = {}
        """By arrow order: the arrows that were taken, with their scopes."""
        self.held: tuple[LoopIteration, ...] = ()
        """Loop iterations that skipped arrows left."""
        self.parts: dict[int, Join] = {}
        """For an aggregate: items, some of whose arrows are resolved."""
        self.items: dict[int, tuple[str, Any]] = {}
        """For an aggregate: the collected value of each item, with the vertex that it came from."""
        self.scope: VariableScope = scope or {}
        self.error: StepError | None = None
        """For an aggregate: the first error in collecting an item."""


class LoopIteration:
    """One iteration of a loop. Its cycle activities decide whether the loop repeats; iterations of inner loops bring
    more of these activities."""

    __slots__ = ("held", "repeats", "undecided", "unresolved")

    def __init__(self, cycles: int, exits: int) -> None:
        self.undecided = cycles
        self.unresolved = exits
        """Arrows out of the loop that are not resolved yet."""
        self.repeats = False
        self.held: list[tuple[StepId, tuple[LoopIteration, ...]]] = []
        """Skipped steps behind the loop; recorded as skipped if the iteration does not repeat."""


class CycleHook:
    """A hook in a plane, while a cycle activity may still return to it."""

    __slots__ = ("entries", "scope", "undecided")

    def __init__(self, scope: VariableScope) -> None:
        self.scope = scope
        """The scope when the hook was first passed."""
        self.entries = 1
        self.undecided = 1
        """Iterations, those about to begin included, that may still return to the hook."""


class GraphState:
    """State of one graph run: a fold of its journal, so replay rebuilds it."""

    __slots__ = ("hooks", "job", "joins", "loops", "params", "result", "semaphore")

    def __init__(self) -> None:
        self.joins: dict[tuple[int, Plane], Join] = {}
        self.loops: dict[tuple[int, Plane], LoopIteration] = {}
        self.hooks: dict[tuple[int, Plane], CycleHook] = {}
        self.job: dict[str, Any] = {}
        self.params: dict[str, Any] | None = None
        """The run's parameters as they are now; `None` if the graph declares none."""
        self.result: Any = NO_OUTPUT
        self.semaphore = 0

    def output(self, value: Any) -> None:
        """Set the output; the first one counts."""
        if self.result is NO_OUTPUT:
            self.result = value

    def iteration(self, hook: Vertex, plane: Plane) -> LoopIteration:
        """The iteration of the hook's loop in that plane; a new one if it has begun only now."""
        key = hook.index, plane[: len(hook.positions) + 1]
        found = self.loops.get(key)
        if found is None:
            found = self.loops[key] = LoopIteration(hook.cycles, hook.exits)
        return found

    def drop_if_done(self, hook: Vertex, plane: Plane, iteration: LoopIteration) -> None:
        """Forget an iteration whose cycle activities and exits are all resolved."""
        if not iteration.undecided and not iteration.unresolved:
            del self.loops[hook.index, plane[: len(hook.positions) + 1]]

    def count_iterations(self, hook: Vertex, plane: Plane, more: int) -> None:
        """Change how many undecided iterations the hook has; forget the hook when there are none."""
        key = hook.index, plane[: len(hook.positions)]
        entered = self.hooks.get(key)
        if entered is None:
            return  # the hook was skipped
        entered.undecided += more
        if not entered.undecided:
            del self.hooks[key]

    @property
    def outcome(self) -> Any:
        """The run's result: its output, else its job data, else None."""
        if self.result is not NO_OUTPUT:
            return self.result
        return self.job or None
