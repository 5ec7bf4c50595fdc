"""Computes long transitions of graphs in parts, one for each iteration of the event loop.

A fact may lead to a long computation. Each turn of the run does as much of it as its machine allows (`TURN_WORK`), and
the host's other runs take turns in between. The fact is durable before the rest is computed; until the transition is
complete the run takes in no other fact but a cancellation.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from perdure.core.ids import RunId
from perdure.engine.runs.warm import WarmRun
from perdure.host.runs.cache import RunCache

RECHECK_S = 0.05
"""How long a fact waits before it checks whether its run is still in memory."""

TakeTurn = Callable[[RunId], Awaitable[bool]]
"""Gives a run a turn without a fact. False if this host can't advance the run."""


class LongTransitions:
    """The runs of a host whose transitions are not complete, and the facts that wait for them."""

    def __init__(self, cache: RunCache, take_turn: TakeTurn, stopping: asyncio.Event) -> None:
        self._cache = cache
        self._stopping = stopping
        self._take_turn = take_turn
        self._unfinished: set[WarmRun] = set()
        self._finished: dict[RunId, asyncio.Event] = {}
        """Set when the transition of a run is complete, if a fact waits for it."""

    async def finish(self, run: WarmRun) -> None:
        """Give the run turns until the transition from its last fact is complete."""
        if run in self._unfinished:
            return
        self._unfinished.add(run)
        run.pin()  # so that it stays in memory: a replay would begin the transition anew
        try:
            while run.machine.is_busy:
                await asyncio.sleep(0)
                if not self._is_in_memory(run):
                    break
                if not await self._take_turn(run.run_id):
                    return
            if not (self._is_in_memory(run) or self._stopping.is_set()):
                await self._take_turn(run.run_id)  # a load resumes the transition from the journal
        finally:
            run.unpin()
            self._unfinished.discard(run)
            event = self._finished.pop(run.run_id, None)
            if event is not None:
                event.set()

    def _is_in_memory(self, run: WarmRun) -> bool:
        return self._cache.get(run.run_id) is run

    async def wait(self, run: WarmRun) -> None:
        """Wait until the run is not busy, or may have left memory."""
        event = self._finished.setdefault(run.run_id, asyncio.Event())
        with suppress(TimeoutError):
            async with asyncio.timeout(RECHECK_S):
                await event.wait()
