"""Feeds the outcomes of attempts to their runs, and begins their steps that have waited for a slot."""

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from perdure.core.ids import RunId, StepId
from perdure.engine.runs.attempt_outcome import AttemptOutcome
from perdure.engine.runs.attempts import complete_attempt
from perdure.engine.runs.warm import WarmRun
from perdure.host.runs.batch import Batch
from perdure.host.runs.cache import RunCache
from perdure.host.runs.parking import FinishedAttempt
from perdure.host.runs.rounds import Rounds
from perdure.host.runs.staging import Act, Staging
from perdure.host.tasks.attempt import Attempt
from perdure.host.tasks.executor import Executor
from perdure.host.tasks.slots import want

AdvanceFinished = Callable[[RunId, Act, FinishedAttempt | None], Awaitable[bool]]
"""Advances a run by the outcome of an attempt, which is kept even if the run must be parked; or without an outcome."""


class _Turn(list[FinishedAttempt]):
    """What one run takes in with its next turn: outcomes of attempts, and steps that have got slots.

    A list itself, because every step makes one.
    """

    __slots__ = ("granted", "keepers", "owner", "run")

    owner: "Outcomes"
    run: WarmRun

    granted: tuple[tuple[Sequence[StepId], Callable[[], None]], ...]
    """Steps that have got slots, and what to call when that is decided."""

    keepers: tuple[Attempt, ...]
    """Those attempts that have kept their slots for the next steps."""

    def begin(self) -> Batch:
        return self.owner.begin(self)

    def __call__(self, outcome: BaseException | None) -> None:
        self.owner.decided(self, outcome)


class Outcomes:
    """Feeds a warm run all outcomes of one iteration of the event loop in one turn, without waiting for its commit.

    The dispatcher advances a run for each outcome separately if it is not warm, is held or busy, or its turn failed.
    Steps that have waited for a slot begin in the same turn: a run has at most one turn in a round.
    """

    def __init__(
        self,
        executor: Executor,
        cache: RunCache,
        staging: Staging,
        rounds: Rounds | None,
        advance: AdvanceFinished,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        """Without `rounds` each outcome is fed separately."""
        self._executor = executor
        self._cache = cache
        self._staging = staging
        self._rounds = rounds
        self._advance = advance
        self._spawn = spawn
        self._turns: dict[WarmRun, _Turn] = {}

    def take(self, attempt: Attempt, outcome: AttemptOutcome) -> Awaitable[None] | None:
        """Take the outcome of an attempt of an own run. The caller awaits what this returns, if anything."""
        run = self._cache.get(attempt.info.run_id)
        if run is None or self._rounds is None:
            return self._feed_one(attempt, outcome)
        turn = self._turn(self._rounds, run)
        turn.append((attempt, outcome))
        if attempt.keeps_slot:
            turn.keepers = (*turn.keepers, attempt)
        return None

    def begin_steps(
        self, run_id: RunId, steps: Sequence[StepId], on_decided: Callable[[], None]
    ) -> bool:
        """Begin steps that have got slots, without waiting for the commit. False if the run needs a turn of its own."""
        run = self._cache.get(run_id)
        if run is None or self._rounds is None or _is_occupied(run):
            return False
        turn = self._turn(self._rounds, run)
        turn.granted = (*turn.granted, (steps, on_decided))
        return True

    def _turn(self, rounds: Rounds, run: WarmRun) -> _Turn:
        """The turn that the run takes in the next round."""
        turn = self._turns.get(run)
        if turn is None:
            turn = self._turns[run] = _Turn()
            turn.owner, turn.run = self, run
            turn.granted = turn.keepers = ()
            run.pin()  # so that it stays in memory
            rounds.add(turn)
        return turn

    def begin(self, turn: _Turn) -> Batch:
        """Feed what has arrived; what follows goes into the next round."""
        run = turn.run
        del self._turns[run]
        run.unpin()
        if _is_occupied(run) or self._cache.get(run.run_id) is not run:
            raise _NotNow
        batch = self._staging.feed(run, partial(_take_in, turn))
        batch.keepers = turn.keepers
        return batch

    def decided(self, turn: _Turn, failure: BaseException | None) -> None:
        """The turn is durable: its attempts are over. Or it failed, and each is fed separately."""
        for attempt, outcome in turn:
            if failure is None:
                self._executor.forget(attempt)
            else:
                # If a fresh load fails, too, the program is the cause.
                self._spawn(self._feed_one(attempt, outcome))
        for steps, on_decided in turn.granted:
            if failure is None:
                on_decided()
            else:
                self._spawn(self._begin_again(turn.run.run_id, steps, on_decided))

    async def _begin_again(
        self, run_id: RunId, steps: Sequence[StepId], on_decided: Callable[[], None]
    ) -> None:
        """Begin steps after their turn failed, after a fresh load if necessary."""
        try:
            await self._advance(run_id, partial(want, steps), None)
        finally:
            on_decided()

    async def _feed_one(self, attempt: Attempt, outcome: AttemptOutcome) -> None:
        """Advance the run by one outcome, after a fresh load if necessary."""
        self._executor.release_kept(attempt)  # it may take long
        try:
            await self._advance(
                attempt.info.run_id, attempt.completing(outcome), (attempt, outcome)
            )
        finally:
            self._executor.forget(attempt)


class _NotNow(Exception):
    """The run has left memory meanwhile, or is held or busy."""


def _is_occupied(run: WarmRun) -> bool:
    """Whether the run takes no fact now."""
    return run.is_held or run.machine.is_busy


def _take_in(turn: _Turn, run: WarmRun) -> None:
    if len(turn) > 1:
        run.machine.feed_together(partial(_complete, turn, run))
    else:
        _complete(turn, run)
    for steps, _ in turn.granted:
        want(steps, run)


def _complete(turn: _Turn, run: WarmRun) -> None:
    for attempt, outcome in turn:
        complete_attempt(run, attempt.info.step, attempt.info.attempt, outcome)
