"""Which executions of a run's steps count: a fold over its journal."""

from typing import Final

from perdure.core.ids import StepId
from perdure.core.journal import events as e
from perdure.core.replay.doubt import doubted_steps, resolution_of
from perdure.core.streams.chunks import ROOT, ChunkOrigin, ChunkState

_LOST: Final = None
"""Outcome of a step without an execution that counts: failed, cancelled or skipped."""


class Attempts:
    """The state of every attempt, by the journal.

    An attempt is completed by its own successful `InvokeCompleted`. It is abandoned when it fails, whether or not a
    retry follows; when it is in doubt, or a later one begins; when its step is cancelled or skipped; and when the
    run ends without it. Of the claims of a queued attempt only the last one can complete it.
    """

    def __init__(self) -> None:
        self.is_over = False
        """The run has ended: no attempt completes any more."""
        self._begun: dict[StepId, int] = {}
        """The last started attempt of each open step."""
        self._abandoned: dict[StepId, int] = {}
        """The last abandoned attempt of each open step."""
        self._ended: dict[StepId, tuple[int, int] | None] = {}
        """The attempt and claim that count, of each settled step."""
        self._claims: dict[tuple[StepId, int], int] = {}
        """The last claim seen of each attempt, if not the first."""

    def learn(self, event: e.Event) -> None:
        """Take in the next event of the journal."""
        match event:
            case e.InvokeStarted(step, attempt):
                self._begun[step] = attempt
                self._abandon(step, attempt - 1)
            case e.InvokeRetrying(promise_id=step, failed_attempt=attempt):
                self._abandon(step, attempt)
            case e.InvokeCompleted(promise_id=step, attempt=attempt, claim=claim, ok=ok):
                self._end(step, (attempt, claim) if ok else _LOST)
            case e.StepSkipped(promise_id=step):
                self._end(step, _LOST)
            case e.Posted() if resolution_of(event) is not None:
                for step, _ in doubted_steps(event):
                    self._abandon(step, self._begun.get(step, 0))
            case e.Terminal():
                self.is_over = True
            case _:
                pass

    def see(self, origin: ChunkOrigin) -> None:
        """A chunk of that execution exists: earlier claims of the same attempt have lost their lease."""
        attempt = origin.step, origin.attempt
        if origin.claim > self._claims.get(attempt, 1):
            self._claims[attempt] = origin.claim

    def state_of(self, origin: ChunkOrigin) -> ChunkState:
        """Whether the chunks of that execution count, as far as is known."""
        step, attempt, claim = origin
        if origin == ROOT or self._ended.get(step) == (attempt, claim):
            return ChunkState.COMPLETED
        if (
            self.is_over
            or step in self._ended
            or attempt <= self._abandoned.get(step, 0)
            or claim < self._claims.get((step, attempt), 1)
        ):
            return ChunkState.ABANDONED
        return ChunkState.PENDING

    def _abandon(self, step: StepId, attempt: int) -> None:
        if attempt > self._abandoned.get(step, 0):
            self._abandoned[step] = attempt

    def _end(self, step: StepId, winner: tuple[int, int] | None) -> None:
        self._ended[step] = winner
        self._begun.pop(step, None)
        self._abandoned.pop(step, None)
