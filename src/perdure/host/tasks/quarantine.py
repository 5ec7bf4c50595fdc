"""Quarantine: steps that may have crashed their hosts begin one at a time.

The journal does not record a start for a step that waits here: if this host dies meanwhile, the step is not in doubt.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from perdure.core.ids import RunId, StepId
from perdure.core.replay.suspicion import RunStep, Suspect, is_suspect, next_suspect
from perdure.engine.runs.machine import RunMachine
from perdure.engine.runs.promise import DurablePromise
from perdure.host.tasks.attempt import Attempt
from perdure.host.tasks.executor import Executor

MOST_PAUSES = 10
"""Upper bound for the total delay, in full pauses, however many suspects there are."""

BeginStep = Callable[[RunId, StepId], Awaitable[object]]
"""Begins a step that the quarantine admits."""


class Quarantine:
    """Admits the suspects of this host one by one: the next when the last has ended, or has run for `length_s`.

    The first waits for one pause, too: steps that are not suspects begin at once, and one of them may be the cause.
    """

    def __init__(
        self,
        executor: Executor,
        begin: BeginStep,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        length_s: float,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._executor = executor
        self._begin = begin
        self._spawn = spawn
        self.length_s = length_s
        self._waiting: dict[RunStep, Suspect] = {}
        self._most_waiting = 0
        """The largest number of waiting suspects since there were none."""
        self._admitted: RunStep | None = None
        """The suspect that may begin now."""
        self._pause: asyncio.TimerHandle | None = None
        """Until it fires no suspect is admitted."""
        self._last_begun_ms = 0
        """When the last of all suspects began, as far as this host knows."""

    def note_starts(self, machine: RunMachine) -> None:
        """Note when the suspects of a run began. Must come before the load fails some of them."""
        begun_ms = (promise.begun_at_ms for promise in machine.promises.values())
        self._last_begun_ms = max(self._last_begun_ms, *begun_ms, 0)

    def admits(self, run_id: RunId, promise: DurablePromise) -> bool:
        """Whether the step may begin now. If not, the quarantine begins it later."""
        if not is_suspect(promise.deaths) or not self.length_s:
            return True
        place = run_id, promise.step
        if place == self._admitted:
            return True
        is_idle = self.is_idle
        self._waiting[place] = Suspect(promise.deaths, promise.begun_at_ms)
        self._most_waiting = max(self._most_waiting, len(self._waiting))
        if is_idle:
            self._start_pause()
        return False

    @property
    def is_idle(self) -> bool:
        """Whether no suspect runs in quarantine or waits for it."""
        return self._admitted is None and self._pause is None and not self._waiting

    def drop(self, run_id: RunId, step: StepId) -> None:
        """Forget a step that its run no longer needs."""
        self._waiting.pop((run_id, step), None)

    def watch(self, attempt: Attempt) -> None:
        """A suspect begins: the next waits until it has ended, or for one pause."""
        if attempt.runner is None:
            # It has ended already, or the executor did not start it because the host stops.
            self._admit_next()
        else:
            attempt.runner.add_done_callback(partial(self._end_pause, self._start_pause()))

    def _start_pause(self) -> asyncio.TimerHandle:
        if self._pause is not None:
            self._pause.cancel()
        # If many wait, the machine more likely died twice than a step killed it: shorter pauses then.
        pause_s = self.length_s * min(1.0, MOST_PAUSES / max(1, self._most_waiting))
        # A timer, not a background task: a stop waits for those.
        self._pause = self._loop.call_later(pause_s, self._admit_next)
        return self._pause

    def _end_pause(self, pause: asyncio.TimerHandle, _: object) -> None:
        if self._pause is pause:
            pause.cancel()
            self._admit_next()

    def _admit_next(self) -> None:
        self._pause = None
        if not self._waiting:
            self._most_waiting = 0
        elif self._executor.is_open:
            suspect = self._admitted = next_suspect(self._waiting, self._last_begun_ms)
            del self._waiting[suspect]
            self._spawn(self._begin_admitted(*suspect))

    async def _begin_admitted(self, run_id: RunId, step: StepId) -> None:
        try:
            await self._begin(run_id, step)
        finally:
            self._admitted = None
            attempt = self._executor.find(run_id, step)
            if attempt is not None:
                self.watch(attempt)
            else:
                # The run does not need it any more, or another host has it, or it waits for a slot and comes back here.
                self._admit_next()
