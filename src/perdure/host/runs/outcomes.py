"""Feeds the outcomes of attempts to their runs."""

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from perdure.core.ids import RunId
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

AdvanceFinished = Callable[[RunId, Act, FinishedAttempt], Awaitable[bool]]
"""Advances a run by the outcome of an attempt, which is kept even if the run must be parked."""


class Outcomes:
    """Feeds a warm run all outcomes of one iteration of the event loop in one turn, without waiting for its commit.

    The dispatcher advances a run for each outcome separately if it is not warm, is held or busy, or its turn failed.
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
        self._finished: dict[WarmRun, list[FinishedAttempt]] = {}

    def take(self, attempt: Attempt, outcome: AttemptOutcome) -> Awaitable[None] | None:
        """Take the outcome of an attempt of an own run. The caller awaits what this returns, if anything."""
        run = self._cache.get(attempt.info.run_id)
        if run is None or self._rounds is None:
            return self._feed_one(attempt, outcome)
        if run in self._finished:
            self._finished[run].append((attempt, outcome))
        else:
            finished = self._finished[run] = [(attempt, outcome)]
            run.pin()  # so that it stays in memory
            self._rounds.add(partial(self._begin, run), partial(self._decided, finished))
        return None

    def _begin(self, run: WarmRun) -> Batch:
        """Feed the outcomes that have arrived; later ones go into the next round."""
        finished = self._finished.pop(run)
        run.unpin()
        if run.is_held or run.machine.is_busy or self._cache.get(run.run_id) is not run:
            raise _NotNow
        return self._staging.feed(run, partial(_complete, finished))

    def _decided(self, finished: Sequence[FinishedAttempt], failure: BaseException | None) -> None:
        for attempt, outcome in finished:
            if failure is None:
                self._executor.forget(attempt)
            else:
                # If a fresh load fails, too, the program is the cause.
                self._spawn(self._feed_one(attempt, outcome))

    async def _feed_one(self, attempt: Attempt, outcome: AttemptOutcome) -> None:
        """Advance the run by one outcome, after a fresh load if necessary."""
        try:
            await self._advance(
                attempt.info.run_id, attempt.completing(outcome), (attempt, outcome)
            )
        finally:
            self._executor.forget(attempt)


class _NotNow(Exception):
    """The run has left memory meanwhile, or is held or busy."""


def _complete(finished: Sequence[FinishedAttempt], run: WarmRun) -> None:
    if len(finished) > 1:
        run.machine.feed_together(partial(_complete_each, finished, run))
    else:
        _complete_each(finished, run)


def _complete_each(finished: Sequence[FinishedAttempt], run: WarmRun) -> None:
    for attempt, outcome in finished:
        complete_attempt(run, attempt.info.step, attempt.info.attempt, outcome)
