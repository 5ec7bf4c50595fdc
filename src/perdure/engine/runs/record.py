"""The record of a run's decisions: collects new ones, compares repeated ones with the journal."""

from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any, NoReturn, TypeVar

from msgspec.structs import replace

from perdure.core.errors import PerdureError
from perdure.core.ids import StepId
from perdure.core.journal import events as e
from perdure.core.replay.matching import Divergence, differs
from perdure.core.replay.patching import set_markers_apart
from perdure.engine.runs.effects import RecordedChange, RunEffect

E = TypeVar("E", bound=e.Event)

IsSame = Callable[[e.Event, e.Event], bool]


class Diverged(BaseException):
    """The program decided otherwise than its journal; nothing may be appended."""

    def __init__(self, divergence: Divergence) -> None:
        super().__init__(divergence)
        self.divergence = divergence


class Record:
    """A cursor over the journal's events during replay, and after their end a list of changes to append.

    `place` returns the program's position for error texts; `is_same` whether a recorded event matches the program's
    though they differ. Both refer to the machine, so the record drops them after replay: a reference cycle would keep
    the run in memory until the garbage collector finds it.
    """

    __slots__ = (
        "_effects",
        "_is_same",
        "_markers",
        "_place",
        "_position",
        "_recorded",
        "changes",
        "diverged",
    )

    def __init__(
        self, recorded: Sequence[e.Event], place: Callable[[], str], is_same: IsSame
    ) -> None:
        self.changes: list[RecordedChange] = []
        self._place: Callable[[], str] | None = place if recorded else None
        self._is_same: IsSame | None = is_same if recorded else None
        self._recorded, self._markers = set_markers_apart(recorded) if recorded else ((), {})
        self._position = 0
        self._effects: list[RunEffect] = []
        self.diverged: Diverged | None = None
        """Set where the program left the recorded path. What it does while it unwinds is not compared."""

    @property
    def is_replaying(self) -> bool:
        return self._position < len(self._recorded)

    @property
    def has_effects(self) -> bool:
        """Whether effects wait for the next decision."""
        return bool(self._effects)

    @property
    def seq(self) -> int:
        """The number of the next entry, patch markers included."""
        return self._position + sum(place <= self._position for place in self._markers.values())

    def has_marked(self, patch: str) -> bool:
        """Whether the journal has the marker of that patch up to here."""
        place = self._markers.get(patch)
        return place is not None and place <= self._position

    def facts(self, kinds: Container[type[e.Event]]) -> Iterator[e.Event]:
        """The recorded facts, in order. Before it takes the next one, the machine repeats the decisions in between."""
        recorded = self._recorded
        while self._position < len(recorded):
            event = recorded[self._position]
            if not _is_fact(event, kinds):
                self.diverge(None)
            self._position += 1
            yield event

    def take_fact(self, kind: type[E]) -> E | None:
        """The recorded fact of that kind in the middle of the repeated turn, if the journal has one here."""
        if not self.is_replaying or self.diverged is not None:
            return None
        event = self._recorded[self._position]
        if not isinstance(event, kind):
            return None
        self._position += 1
        return event

    def is_next(self, event: e.Event) -> bool:
        """Whether the next recorded event equals `event`."""
        if not self.is_replaying:
            return False
        recorded = self._recorded[self._position]
        return recorded == event or (self._is_same is not None and self._is_same(recorded, event))

    def is_scheduled(self, step: StepId, name: str, payload: bytes) -> bool:
        """Whether the next recorded event schedules that step with those arguments."""
        if not self.is_replaying:
            return False
        event = self._recorded[self._position]
        if not isinstance(event, e.InvokeScheduled) or self._is_same is None:
            return False
        again = replace(event, promise_id=step, function_name=name, payload=payload)
        return event == again or self._is_same(event, again)

    def is_next_of(self, kind: type[e.Event]) -> bool:
        """Whether the next recorded event is of that kind."""
        return self.is_replaying and isinstance(self._recorded[self._position], kind)

    def is_fact_next(self, kinds: Container[type[e.Event]], decided: Container[str]) -> bool:
        """Whether the next recorded event is a fact. A `Posted` with a label in `decided` is a decision instead."""
        if not self.is_replaying:
            return False
        event = self._recorded[self._position]
        if isinstance(event, e.Posted) and event.label in decided:
            return False
        return _is_fact(event, kinds)

    def forget(self) -> None:
        """Release the recorded events after replay."""
        self._recorded = ()
        self._place = self._is_same = None

    def add(self, event: e.Event, effects: tuple[RunEffect, ...]) -> None:
        """Add a fact, with its effects."""
        self.changes.append(RecordedChange(event, effects))

    def attach(self, effect: RunEffect) -> None:
        """Let `effect` commit with the next decision. If that decision is recorded, the effect is durable already."""
        self._effects.append(effect)

    def emit(self, event: e.Event, *effects: RunEffect) -> Any:
        """Add a decision of the program. Returns the event that counts: the recorded one in replay, else this one."""
        if self._position < len(self._recorded):
            if self.diverged is not None:
                raise self.diverged
            recorded = self._recorded[self._position]
            if differs(recorded, event):
                self._require_same(recorded, event)
            self._position += 1
            if self._effects:
                self._effects.clear()
            return recorded
        if self._effects:
            effects = (*self._effects, *effects)
            self._effects.clear()
        self.changes.append(RecordedChange(event, effects))
        return event

    def _require_same(self, recorded: e.Event, actual: e.Event) -> None:
        try:
            is_same = self._is_same is not None and self._is_same(recorded, actual)
        except PerdureError as error:
            self.diverge(actual, str(error))
        if not is_same:
            self.diverge(actual)

    def diverge(self, actual: e.Event | None, reason: str = "") -> NoReturn:
        """Raise `Diverged`: the program decided `actual` where the journal has another event."""
        recorded = self._recorded[self._position]
        place = "" if self._place is None else self._place()
        self.diverged = Diverged(Divergence(self.seq, recorded, actual, place, reason))
        raise self.diverged


def _is_fact(event: e.Event, kinds: Container[type[e.Event]]) -> bool:
    """Whether the event happened to the run. A skip that no operator asked for is the program's own decision."""
    if isinstance(event, e.StepSkipped) and event.signal_id is None:
        return False
    return type(event) in kinds
