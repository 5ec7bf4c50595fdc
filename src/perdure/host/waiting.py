"""Steps that wait for a slot, or for their turn."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from perdure.core.ids import RunId, StepId
from perdure.engine.replay.promise import DurablePromise
from perdure.engine.replay.warm import WarmRun
from perdure.host.bodies import Bodies
from perdure.host.probation import Probation

Advance = Callable[[RunId, Callable[[WarmRun], None]], Awaitable[bool]]


class WaitingSteps:
    """Apart for async bodies and for threads, each in the order of asking.

    Slots that become free together are filled together: steps of one run begin in one turn of it.
    """

    def __init__(
        self,
        bodies: Bodies,
        advance: Advance,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        probation_s: float,
    ) -> None:
        self._bodies = bodies
        self.probation = Probation(bodies, self._begin_one, spawn, probation_s)
        self._advance = advance
        self._spawn = spawn
        self._lines: dict[bool, OrderedDict[tuple[RunId, StepId], None]] = {
            is_async: OrderedDict() for is_async in (True, False)
        }
        self.on_slot: Callable[[], None] = lambda: None
        """Called when a slot is free that none of them waits for."""
        self._freed = {True: 0, False: 0}
        """Slots that became free in this turn of the loop."""

    def reserve(self, run_id: RunId, promise: DurablePromise) -> bool:
        """Take a slot for the next attempt of a step. One that can't begin now waits, and begins when it can."""
        if promise.doubts and not self.probation.admits(run_id, promise):
            return False
        task = promise.task
        if self._bodies.reserve(task):
            return True
        self._lines[task.is_async][run_id, promise.step] = None
        return False

    def drop(self, run_id: RunId, step: StepId) -> None:
        """Nobody wants it any more."""
        for line in self._lines.values():
            line.pop((run_id, step), None)
        self.probation.drop(run_id, step)

    def fill(self, is_async: bool) -> None:
        """A slot is free: let a step have it, or whoever else has a use for it."""
        if not self._lines[is_async]:
            self.on_slot()
            return
        self._freed[is_async] += 1
        if self._freed[is_async] == 1:
            # Not at once: whatever else becomes free in this turn of the loop comes along.
            self._spawn(self._begin(is_async))

    async def _begin(self, is_async: bool) -> None:
        """Begin as many steps as slots became free; and others, if not every one is still wanted."""
        freed, self._freed[is_async] = self._freed[is_async], 0
        while self._lines[is_async] and self._bodies.has_slot(is_async):
            runs = self._take(is_async, freed).items()
            await asyncio.gather(
                *(self._advance(run, partial(_want, steps)) for run, steps in runs)
            )

    async def _begin_one(self, run_id: RunId, step: StepId) -> None:
        await self._advance(run_id, partial(_want, [step]))

    def _take(self, is_async: bool, count: int) -> dict[RunId, list[StepId]]:
        """Those that wait longest, by run."""
        line = self._lines[is_async]
        found: dict[RunId, list[StepId]] = {}
        for _ in range(min(count, len(line))):
            (run_id, step), _ = line.popitem(last=False)
            found.setdefault(run_id, []).append(step)
        return found


def _want(steps: Sequence[StepId], run: WarmRun) -> None:
    promises = run.machine.promises
    run.machine.unstarted.extend(promises[step] for step in steps if step in promises)
