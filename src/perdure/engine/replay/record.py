"""The record of a run's decisions: new ones are collected, old ones are compared with the journal."""

from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any, NoReturn, TypeVar

from perdure.core.errors import PerdureError
from perdure.core.journal import events as e
from perdure.core.replay.matching import Divergence, differs
from perdure.core.replay.patching import set_markers_apart
from perdure.engine.replay.effects import Change, Effect

E = TypeVar("E", bound=e.Event)

IsSame = Callable[[e.Event, e.Event], bool]


class Diverged(BaseException):
    """The program left the recorded path; nothing may be appended."""

    def __init__(self, divergence: Divergence) -> None:
        super().__init__(divergence)
        self.divergence = divergence


class Record:
    """A cursor over what the journal holds, and after its end a list of what is to be appended.

    `place` tells people where the program is; `is_same` whether a recorded event that differs is the same all the
    same. Both are the machine's, so they are kept only while there is something to compare: what is in memory of a run
    must not hold on to itself, or only the garbage collector finds it.
    """

    def __init__(
        self, recorded: Sequence[e.Event], place: Callable[[], str], is_same: IsSame
    ) -> None:
        self.changes: list[Change] = []
        self._place: Callable[[], str] | None = place if recorded else None
        self._is_same: IsSame | None = is_same if recorded else None
        self._recorded, self._markers = set_markers_apart(recorded) if recorded else ((), {})
        self._position = 0
        self._effects: list[Effect] = []
        self.diverged: Diverged | None = None
        """Where the program left the recorded path. What it does while it is unwound is not compared."""

    @property
    def is_replaying(self) -> bool:
        return self._position < len(self._recorded)

    @property
    def seq(self) -> int:
        """The number of the entry that is next, markers counted."""
        return self._position + sum(place <= self._position for place in self._markers.values())

    def has_marked(self, patch: str) -> bool:
        """Whether the journal marks that patch here or before."""
        place = self._markers.get(patch)
        return place is not None and place <= self._position

    def facts(self, kinds: Container[type[e.Event]]) -> Iterator[e.Event]:
        """What happened to the run, in order. Whoever asks for the next has repeated the decisions in between."""
        recorded = self._recorded
        while self._position < len(recorded):
            event = recorded[self._position]
            if type(event) not in kinds:
                self.diverge(None)
            self._position += 1
            yield event

    def take_fact(self, kind: type[E]) -> E | None:
        """What happened to the run in the middle of the turn that it repeats, if the journal has such a thing here."""
        if not self.is_replaying or self.diverged is not None:
            return None
        event = self._recorded[self._position]
        if not isinstance(event, kind):
            return None
        self._position += 1
        return event

    def is_next(self, event: e.Event) -> bool:
        """Whether the journal has just that here."""
        return self.is_replaying and self._recorded[self._position] == event

    def forget(self) -> None:
        """All that was recorded is replayed, and need not stay in memory."""
        self._recorded = ()
        self._place = self._is_same = None

    def add(self, event: e.Event, effects: tuple[Effect, ...]) -> None:
        """Something happened to the run."""
        self.changes.append(Change(event, effects))

    def attach(self, effect: Effect) -> None:
        """Let `effect` commit with the next decision; if that is recorded, so is the effect."""
        self._effects.append(effect)

    def emit(self, event: e.Event, *effects: Effect) -> Any:
        """The program decided on `event`. Returns the event that stands: this one, or the recorded one."""
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
        self.changes.append(Change(event, effects))
        return event

    def _require_same(self, recorded: e.Event, actual: e.Event) -> None:
        try:
            is_same = self._is_same is not None and self._is_same(recorded, actual)
        except PerdureError as error:
            self.diverge(actual, str(error))
        if not is_same:
            self.diverge(actual)

    def diverge(self, actual: e.Event | None, reason: str = "") -> NoReturn:
        """The program did `actual` where the journal has something else."""
        if isinstance(actual, e.ExecutionFailed) and actual.payload is not None:
            reason = f"the program raised {actual.payload.decode(errors='replace')[:2000]}"
        recorded = self._recorded[self._position]
        place = "" if self._place is None else self._place()
        self.diverged = Diverged(Divergence(self.seq, recorded, actual, place, reason))
        raise self.diverged
