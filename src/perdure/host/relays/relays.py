"""The relays of a host, one for each bus that its engine was opened with."""

import asyncio
import logging
from contextlib import suppress

from perdure.core.errors import StoreError
from perdure.core.ids import RunId
from perdure.host.bus.enrolling import LocalRelay
from perdure.host.context import HostContext
from perdure.host.relays.relay import Relay
from perdure.store.bus_table import StoredBus

log = logging.getLogger("perdure.bus")

REFRESH_MS = 60_000
"""How often a process reads which buses the store has, if no hint tells it to."""

NEW_MS = 600_000
"""How long after its registration open runs are enrolled that were created by processes that did not know the bus."""

ENROLLED_AT_ONCE = 500


class Relays:
    """Registers the buses, hints their relays, and knows which buses new runs are published to."""

    def __init__(self, context: HostContext) -> None:
        self._context = context
        self._store = context.store
        self._buses = tuple(context.services.buses)
        self.relays: list[Relay] = []
        self._next_refresh_ms = 0
        self._is_refreshing = False

    async def open(self, *, relays_here: bool = True) -> None:
        """Register the buses. With `relays_here` this process also publishes to them."""
        now_ms = self._context.sources.now_ms()
        for bus in self._buses:
            await self._store.buses.register(bus.name, bus.programs, now_ms)
        if relays_here and self._buses:
            self.relays = [Relay(self._context, bus) for bus in self._buses]
            for relay in self.relays:
                local = LocalRelay(relay.holder, relay.expect)
                self._context.enrolments.relayed(relay.bus.name, local)
            self._context.watchers.on_run_grown = self._run_grew
        await self._refresh()
        for relay in self.relays:
            relay.start()

    def _run_grew(self, run_id: RunId) -> None:
        for relay in self.relays:
            relay.run_grew(run_id)

    def refresh_soon(self, *, is_changed: bool = False) -> None:
        """Read which buses the store has, if a change was reported or the last read is long ago."""
        is_due = is_changed or self._context.sources.elapsed_ms() >= self._next_refresh_ms
        if is_due and not self._is_refreshing:
            self._is_refreshing = True
            self._context.spawn(self._try_to_refresh())

    async def _try_to_refresh(self) -> None:
        try:
            with suppress(StoreError):
                await self._refresh()
        finally:
            self._is_refreshing = False

    async def _refresh(self) -> None:
        self._next_refresh_ms = self._context.sources.elapsed_ms() + REFRESH_MS
        stored = await self._store.buses.all()
        self._context.enrolments.know(stored)
        here = {relay.bus.name for relay in self.relays}
        now_ms = self._context.sources.now_ms()
        for bus in stored:
            if bus.name in here and now_ms - bus.since_ms < NEW_MS:
                await self._enrol_open(bus)

    async def _enrol_open(self, bus: StoredBus) -> None:
        """Give open runs a mark that were created before the bus was registered, or by a process without the bus."""
        after: RunId | None = None
        while ids := await self._store.open_ids(after, ENROLLED_AT_ONCE, bus.programs):
            await self._store.buses.enrol_open(bus.name, ids)
            after = ids[-1]

    async def work(self) -> None:
        """Publish all that may be published now."""
        for relay in self.relays:
            await relay.work()

    @property
    def next_due_ms(self) -> int | None:
        """When an event is tried again, or a mark is to be written."""
        now_ms = self._context.sources.now_ms()
        due = (relay.next_due_ms(now_ms) for relay in self.relays)
        return min((each for each in due if each is not None), default=None)

    async def stop(self, grace_s: float) -> None:
        await asyncio.gather(*(relay.stop(grace_s) for relay in self.relays))

    def kill(self) -> None:
        for relay in self.relays:
            relay.kill()
