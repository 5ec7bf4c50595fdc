"""Steps that wait for a slot."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from perdure.core.ids import RunId, StepId
from perdure.engine.replay.warm import WarmRun

Advance = Callable[[RunId, Callable[[WarmRun], None]], Awaitable[bool]]


class WaitingSteps:
    """Apart for async bodies and for threads, each in the order of asking.

    Slots that become free together are filled together: steps of one run begin in one turn of it.
    """

    def __init__(
        self,
        has_slot: Callable[[bool], bool],
        advance: Advance,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._has_slot = has_slot
        self._advance = advance
        self._spawn = spawn
        self._lines: dict[bool, OrderedDict[tuple[RunId, StepId], None]] = {
            is_async: OrderedDict() for is_async in (True, False)
        }
        self._freed = {True: 0, False: 0}
        """Slots that became free in this turn of the loop."""

    def add(self, is_async: bool, run_id: RunId, step: StepId) -> None:
        self._lines[is_async][run_id, step] = None

    def drop(self, run_id: RunId, step: StepId) -> None:
        """Nobody wants it any more."""
        for line in self._lines.values():
            line.pop((run_id, step), None)

    def fill(self, is_async: bool) -> bool:
        """A slot is free: let a step have it. False if none waits."""
        if not self._lines[is_async]:
            return False
        self._freed[is_async] += 1
        if self._freed[is_async] == 1:
            # Not at once: whatever else becomes free in this turn of the loop comes along.
            self._spawn(self._begin(is_async))
        return True

    async def _begin(self, is_async: bool) -> None:
        """Begin as many steps as slots became free; and others, if not every one is still wanted."""
        freed, self._freed[is_async] = self._freed[is_async], 0
        while self._lines[is_async] and self._has_slot(is_async):
            runs = self._take(is_async, freed).items()
            await asyncio.gather(
                *(self._advance(run, partial(_want, steps)) for run, steps in runs)
            )

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
