"""The pending part of a transition: what follows from one answer, decided part by part.

The parts are the walk, the skips that it found, and the end of the run. A turn does a bounded amount of them. How they
are divided into turns only decides which entries share a commit: after a crash in between the journal ends there, and
replay computes the rest again.
"""

from collections import deque
from collections.abc import Callable, Sequence

from perdure.core.graph.walk import Walk
from perdure.core.ids import StepId
from perdure.core.journal import events as e
from perdure.engine.runs.record import Record

TURN_WORK = 200_000
"""Operations in one turn before the rest waits for the next: about 20 ms. A single expression may exceed it."""

Continuation = Callable[[Walk], None]
"""Decides on the result of a completed walk."""


class PendingTransition:
    """The rest of a transition: walk, skips, closing, in this order, and before any other fact."""

    def __init__(self) -> None:
        self._walking: tuple[Walk, Continuation] | None = None
        self._skips: deque[StepId] = deque()
        """Steps whose skip is not emitted yet."""
        self._closing: Callable[[], None] | None = None
        """Emits what follows the skips."""
        self.work = TURN_WORK
        """Operations that remain for this turn."""

    def renew(self) -> None:
        """Begin a turn."""
        self.work = TURN_WORK

    @property
    def is_busy(self) -> bool:
        """Whether any part remains."""
        return self.is_walking or bool(self._skips) or self._closing is not None

    @property
    def is_walking(self) -> bool:
        """Whether the walk is not complete, so nothing of the transition is decided yet."""
        return self._walking is not None

    def walk(self, walk: Walk, then: Continuation) -> None:
        """Walk next; then `then` decides on what the walk found."""
        self._walking = walk, then

    def decide(self, skips: Sequence[StepId], closing: Callable[[], None] | None) -> None:
        """Emit these skips next, then what `closing` emits."""
        self._skips.extend(skips)
        self._closing = closing

    @property
    def is_closing(self) -> bool:
        return self._closing is not None

    def stop_walking(self) -> None:
        """Discard the walk: the run ends, whatever it would find."""
        self._walking = None

    def clear(self) -> None:
        """Discard all parts: the run is over."""
        self._walking = self._closing = None
        self._skips.clear()

    def advance(self, record: Record) -> None:
        """Do the next part."""
        if self._walking is not None:
            self._walk_on(record, *self._walking)
        elif self._skips:
            record.emit(e.StepSkipped(self._skips.popleft(), "no path leads to it"))
        elif self._closing is not None:
            closing, self._closing = self._closing, None
            closing()

    def _walk_on(self, record: Record, walk: Walk, then: Continuation) -> None:
        if record.is_next_of(e.CancelRequested):
            self._walking = None  # the cancellation discarded the walk before, too
            return
        self.work -= walk.advance(self.work)
        if walk.is_finished:
            self._walking = None
            then(walk)
