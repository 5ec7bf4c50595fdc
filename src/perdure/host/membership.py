"""A host's place among the others: its row, its heartbeat, and how it goes on when it was taken for dead."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress

from perdure.core.errors import StoreClosed, StoreError
from perdure.core.ids import HostId
from perdure.host.census import Census
from perdure.host.clock import HostSources, elapsed_ms, steady_ms
from perdure.host.gate import Gate
from perdure.host.host import Host, nothing
from perdure.host.identity import new_host, retire
from perdure.host.patience import Patience
from perdure.host.polling import HORIZON_MS, Poller
from perdure.host.pulse import Pulse
from perdure.host.queues import QueueWorker
from perdure.host.settings import Settings
from perdure.store.hosts import Glance, NewHost, Scope

log = logging.getLogger("perdure.host")


class Membership:
    """Belongs to the event loop that made it; its heartbeat has a thread."""

    def __init__(
        self,
        host: Host,
        worker: QueueWorker,
        poller: Poller,
        census: Census,
        queues: Sequence[str],
        settings: Settings,
    ) -> None:
        self._host = host
        self._worker = worker
        self._poller = poller
        self._census = census
        self._queues = tuple(queues)
        self._settings = settings
        self._stale_after_ms = round(settings.stale_after * 1000)
        self._horizon_ms = HORIZON_MS + round(2000 * settings.heartbeat)
        self._gate = Gate(self._stale_after_ms)
        self._loop = asyncio.get_running_loop()
        self._clock = HostSources()
        """For the thread alone."""
        self._pulse: Pulse | None = None
        self._is_leaving = False
        self._is_rejoining = False

    async def join(self) -> None:
        """Register, and give signs of life from now on. Before the host owns anything."""
        began_ms = elapsed_ms()
        await self._register(self._host.host_id)
        line = self._host.store.lifeline()
        if line is None:
            return
        self._gate.confirm(began_ms)
        self._host.bodies.gate = self._gate
        self._pulse = Pulse(
            line,
            self._scope,
            self._told,
            interval_s=self._settings.heartbeat,
            limit_s=self._settings.stale_after / 4,
        )
        self._pulse.start()

    async def leave(self) -> None:
        """Nothing is the host's any more: it needs no row."""
        self._is_leaving = True
        if self._pulse is not None:
            self._pulse.end()
            await asyncio.to_thread(self._pulse.join)
        await self._host.store.remove_host(self._host.host_id)

    def kill(self) -> None:
        """Give no sign of life any more, and tell nobody."""
        self._is_leaving = True
        if self._pulse is not None:
            self._pulse.end()

    async def _register(self, host_id: HostId) -> None:
        now = self._host.sources.now_ms()
        row = NewHost(host_id, self._stale_after_ms, self._queues, now)
        await self._host.store.register_host(row)

    def _scope(self) -> Scope:
        until_ms = self._clock.now_ms() + self._horizon_ms
        return Scope(self._host.host_id, self._queues, tuple(self._host.programs.names()), until_ms)

    def _told(self, host_id: HostId, glance: Glance | None, began_ms: int) -> None:
        # The loop may be gone, and with it whoever wants to know.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._hear, host_id, glance, began_ms, steady_ms())

    def _hear(self, host_id: HostId, glance: Glance | None, began_ms: int, seen_ms: int) -> None:
        """A beat arrived; or there is no row to beat in."""
        if self._is_leaving or self._is_rejoining or host_id != self._host.host_id:
            return
        if glance is not None:
            self._gate.confirm(began_ms)
            self._poller.show(glance, seen_ms)
            return
        self._is_rejoining = True
        self._host.spawn(self._rejoin())

    async def _rejoin(self) -> None:
        """A peer took this host for dead: go on as another host, without anything that was taken.

        A new name, because the old one is judged: whoever takes over in its name may not be through with it.
        """
        former, host_id = self._host.host_id, new_host()
        self._warn(former, host_id)
        self._gate.shut()
        patience = Patience()
        try:
            while not await self._begin_anew(former, host_id):
                await patience.wait()
        except StoreClosed:
            return
        finally:
            self._is_rejoining = False

    async def _begin_anew(self, former: HostId, host_id: HostId) -> bool:
        """False if the store could not be asked for all of it: then again, from the beginning."""
        began_ms, host = elapsed_ms(), self._host
        try:
            await self._register(host_id)
            if host.host_id == former:
                retire(former)
                self._worker.drop()
                host.become(host_id)
            # What this host began after its row was gone is its own yet; of all the rest the bodies end.
            await self._census.inherit(former)
            await asyncio.gather(*(host.advance(run_id, nothing) for run_id in host.bodies.runs))
        except StoreClosed:
            raise
        except StoreError as error:
            log.warning("the host is not back yet: %s", error)
            return False
        self._gate.confirm(began_ms)
        return True

    def _warn(self, former: HostId, host_id: HostId) -> None:
        silent_s = self._gate.silent_s
        log.warning(
            "host %s was taken for dead: its last heartbeat arrived %s ago, and it allows %g s. Its runs went to "
            "other hosts, and what it still commits of them is rejected; it goes on as host %s. If the process "
            "was not paused or cut off from its store, look for code that holds the interpreter for long (native "
            "code, a machine with too much to do), or raise Settings.stale_after.",
            former,
            "long" if silent_s is None else f"{silent_s:.1f} s",
            self._settings.stale_after,
            host_id,
        )
