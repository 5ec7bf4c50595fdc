"""An engine on a virtual clock: a test moves the time, and days pass at once."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from perdure.client.engine import Engine
from perdure.core.errors import InputError
from perdure.core.limits import MAX_TIME_MS
from perdure.host.host import Host
from perdure.store.rows.hosts import HostScope
from perdure.testing.explorer import VirtualSources
from perdure.testing.probe import Probe

T = TypeVar("T")

PAUSE_S = 0.005
"""Real time between two checks of the awaited object while no run can advance and nothing is due."""


class Clock:
    """The time of a simulated engine. It moves only in `advance` and `run`."""

    def __init__(self, host: Host, sources: VirtualSources, queues: tuple[str, ...]) -> None:
        self._host = host
        self._sources = sources
        self._queues = queues

    @property
    def now(self) -> datetime:
        return datetime.fromtimestamp(self._sources.now_ms() / 1000, UTC)

    async def settle(self) -> None:
        """Wait, in real time, until no run can advance unless time passes."""
        dispatcher = self._host.dispatcher
        await self._host.poller.look()
        while not dispatcher.is_quiet:
            await dispatcher.quiesce()
            # The work that ended may have sent messages, which only a poll finds.
            await self._host.poller.look()
        await self._host.relays.work()

    async def advance(self, duration: float | timedelta) -> None:
        """Move the time forward by `duration`, in seconds. What falls due meanwhile happens at its time, in order."""
        seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
        if not seconds >= 0:
            raise InputError(
                f"the clock can't advance by {seconds} s", "pass a number that is not negative"
            )
        end_ms = self._sources.now_ms() + round(seconds * 1000)
        await self.settle()
        while (due_ms := await self._next_due_ms()) is not None and due_ms <= end_ms:
            await self._advance_to(due_ms)
        await self._advance_to(end_ms)

    async def run(self, what: Awaitable[T]) -> T:
        """Await `what`, such as a run's result, and move the time on whenever no run can advance."""
        awaited = asyncio.ensure_future(what)
        try:
            while not awaited.done():
                await self.settle()
                due_ms = await self._next_due_ms()
                if awaited.done():
                    break
                if due_ms is None:
                    await asyncio.wait([awaited], timeout=PAUSE_S)
                else:
                    await self._advance_to(due_ms)
            return await awaited
        finally:
            awaited.cancel()

    async def _advance_to(self, time_ms: int) -> None:
        self._sources.advance(max(0, time_ms - self._sources.now_ms()))
        await self.settle()

    async def _next_due_ms(self) -> int | None:
        """When the next timer, retry, tick, delayed work or delayed run is due. Ignores what is overdue."""
        dispatcher, now_ms = self._host.dispatcher, self._sources.now_ms()
        store = dispatcher.store
        scope = HostScope(dispatcher.host_id, (), tuple(dispatcher.programs.names()), MAX_TIME_MS)
        snapshot = await store.host_snapshot(scope)
        due = [
            self._host.relays.next_due_ms,
            await store.next_due(dispatcher.host_id),
            await store.next_work(self._queues),
            snapshot.next_tick_ms,
            snapshot.next_admission_ms,
        ]
        ahead = [time_ms for time_ms in due if time_ms is not None and time_ms > now_ms]
        return min(ahead, default=None)


@asynccontextmanager
async def simulated(engine: Engine) -> AsyncIterator[Clock]:
    """Open an engine on a virtual clock, and close it when the block ends. Inside, use the engine as always.

    Tasks execute for real and take real time. Give each simulated engine a store of its own: hosts whose clocks
    differ must not share a store.
    """
    sources = VirtualSources()
    host = await Probe(engine).open(sources)
    try:
        yield Clock(host, sources, host.worker.queues)
    finally:
        await engine.close()
