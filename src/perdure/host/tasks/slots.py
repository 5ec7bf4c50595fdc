"""Steps that wait for a slot, or in quarantine."""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any

from perdure.authoring.task import Task
from perdure.core.ids import RunId, StepId
from perdure.core.replay.suspicion import RunStep
from perdure.engine.runs.promise import DurablePromise
from perdure.engine.runs.warm import WarmRun
from perdure.host.context import HostContext
from perdure.host.tasks.executor import Executor
from perdure.host.tasks.quarantine import Quarantine
from perdure.store.commit.committer import CommitsUnderWay

Advance = Callable[[RunId, Callable[[WarmRun], None]], Awaitable[bool]]

TIME_SLICE_MS = 500
"""How long a run that has waited for a slot keeps it for its next steps, while others wait. Without it every step of a
busy host would wait, and a step that waits takes two turns and two commits."""

BeginTogether = Callable[[RunId, Sequence[StepId], Callable[[], None]], bool]
"""Begins steps of a run in one round with the turns of other runs, and calls the function when that is decided. False
if the run must be advanced by itself."""


class WaitingSteps:
    """Two queues, of async and of sync steps, each in the order of asking.

    Slots that become free together are filled together, so that steps of one run start in one commit.
    """

    def __init__(
        self,
        executor: Executor,
        advance: Advance,
        begin_together: BeginTogether,
        context: HostContext,
        quarantine_s: float,
    ) -> None:
        self._executor = executor
        self.quarantine = Quarantine(executor, self._begin_one, context.spawn, quarantine_s)
        self._advance = advance
        self._begin_together = begin_together
        self._spawn = context.spawn
        self._elapsed_ms = context.sources.elapsed_ms
        self._queues: dict[bool, OrderedDict[RunStep, tuple[int, Task[..., Any]]]] = {
            is_async: OrderedDict() for is_async in (True, False)
        }
        """Async and sync steps that wait, each with its number and its task: the lowest number has waited longest."""
        self._numbers = count()
        self._waiting: Counter[RunId] = Counter()
        """How many steps of each run wait."""
        self._granted: dict[RunStep, Task[..., Any]] = {}
        """Steps that have got a slot, until their run's next turn uses it."""
        self._freed = 0
        """Slots that became free in this iteration of the event loop."""

    def __bool__(self) -> bool:
        """Whether a step waits for a slot."""
        return any(self._queues.values())

    def reserve(self, run: WarmRun, promise: DurablePromise) -> bool:
        """Take a slot for the next attempt of a step. One that can't begin now waits, and begins when it can."""
        run_id = run.run_id
        if promise.doubts and not self.quarantine.admits(run_id, promise):
            return False
        task = promise.task
        if self._granted.pop((run_id, promise.step), None):
            run.slice_ends_ms = self._elapsed_ms() + TIME_SLICE_MS
            return True
        if self._executor.reserve(task):
            return True
        self._queues[task.is_async][run_id, promise.step] = next(self._numbers), task
        self._waiting[run_id] += 1
        return False

    def may_keep_slot(self, run: WarmRun, task: Task[..., Any]) -> bool:
        """Whether the run's next step may begin in the slot of the `task` that has ended, before steps that wait."""
        is_contended = bool(self._queues[task.is_async]) and run.run_id not in self._waiting
        return is_contended and self._elapsed_ms() < run.slice_ends_ms

    def has_steps_of(self, run_id: RunId) -> bool:
        """Whether a step of that run waits for a slot."""
        return run_id in self._waiting

    def _left(self, run_id: RunId) -> None:
        self._waiting[run_id] -= 1
        if not self._waiting[run_id]:
            del self._waiting[run_id]

    def drop(self, run_id: RunId, step: StepId) -> None:
        """Forget a step that its run no longer needs."""
        for queue in self._queues.values():
            if queue.pop((run_id, step), None) is not None:
                self._left(run_id)
        self.quarantine.drop(run_id, step)

    def fill(self) -> bool:
        """Give a free slot to a waiting step. False if no step waits for such a slot."""
        async_steps, sync_steps = self._queues[True], self._queues[False]
        if not (async_steps or sync_steps):  # as mostly
            return False
        has_slot = self._executor.has_slot
        if not ((async_steps and has_slot(True)) or (sync_steps and has_slot(False))):
            return False
        self._freed += 1
        if self._freed == 1:
            # Not at once: slots that become free in the same iteration of the loop are filled together.
            self._spawn(self._begin())
        return True

    async def _begin(self) -> None:
        """Begin as many steps as slots became free; and others, if not every one is still wanted."""
        freed, self._freed = self._freed, 0
        while runs := self._take(freed):
            begun, alone = CommitsUnderWay(), []
            for run_id, steps in runs.items():
                begun.begin()
                if not self._begin_together(run_id, steps, begun.end):
                    begun.end()
                    alone.append(self._advance(run_id, partial(want, steps)))
            try:
                await asyncio.gather(*alone)
                await begun.wait()
            finally:
                self._give_back(runs)

    async def _begin_one(self, run_id: RunId, step: StepId) -> None:
        await self._advance(run_id, partial(want, [step]))

    def _take(self, most: int) -> dict[RunId, list[StepId]]:
        """Those that have waited longest, each with a slot that no other step can take, by run."""
        found: dict[RunId, list[StepId]] = {}
        for _ in range(most):
            queues = [
                queue
                for is_async, queue in self._queues.items()
                if queue and self._executor.has_slot(is_async)
            ]
            if not queues:
                break
            queue = min(queues, key=lambda queue: next(iter(queue.values()))[0])
            (run_id, step), (_, task) = queue.popitem(last=False)
            self._left(run_id)
            self._executor.reserve(task)
            self._granted[run_id, step] = task
            found.setdefault(run_id, []).append(step)
        return found

    def _give_back(self, runs: Mapping[RunId, Sequence[StepId]]) -> None:
        """Give back the slots that these steps got and did not use: they are not wanted any more, or found others."""
        for run_id, steps in runs.items():
            for step in steps:
                task = self._granted.pop((run_id, step), None)
                if task is not None:
                    self._executor.give_back(task)


def want(steps: Sequence[StepId], run: WarmRun) -> None:
    """Let these steps start in the run's next turn, as far as they are still open."""
    promises = run.machine.promises
    run.machine.unstarted.extend(promises[step] for step in steps if step in promises)
