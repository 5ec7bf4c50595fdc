"""The membership of a host: its row, its heartbeat, and how it rejoins after a peer considered it dead."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from perdure.core.errors import SchemaTooNew, StoreClosed, StoreError
from perdure.core.ids import HostId
from perdure.host.backoff import Backoff
from perdure.host.clock import elapsed_ms, steady_ms
from perdure.host.cluster.heartbeat import Heartbeat
from perdure.host.cluster.identity import new_host, retire
from perdure.host.cluster.loop_watch import LoopWatch
from perdure.host.cluster.takeover import Takeover
from perdure.host.runs.dispatcher import Dispatcher, nothing
from perdure.host.tasks.gate import Gate
from perdure.host.tasks.leases import Renewal
from perdure.host.tasks.queues import QueueWorker
from perdure.store.rows.hosts import HostScope, HostSnapshot, NewHost
from perdure.store.rows.records import Claim

log = logging.getLogger("perdure.host")

MAX_SKEW_MS = 1000
"""How far a machine's clock may differ from the store's without a warning."""

HORIZON_MS = 5_000
"""How far ahead a host looks for due messages and work: beyond its next poll, but not through all timers."""


class MembershipOwner(Protocol):
    """The host, to which its membership reports."""

    def snapshot_taken(self, snapshot: HostSnapshot, at_ms: int) -> None:
        """A heartbeat arrived, and read this snapshot at `at_ms` of the steady clock."""

    def host_renamed(self) -> None:
        """A peer considered the host dead: it continues under another id."""

    def schema_outgrown(self, error: SchemaTooNew) -> None:
        """A newer Perdure migrated the store to a schema that this code does not know."""


class Membership:
    """Belongs to the event loop that made it; its heartbeat has a thread of its own."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        worker: QueueWorker,
        takeover: Takeover,
        gate: Gate,
        owner: MembershipOwner,
    ) -> None:
        self._dispatcher = dispatcher
        self._context = dispatcher.context
        self._worker = worker
        self._takeover = takeover
        self._gate = gate
        self._owner = owner
        settings = self._settings = dispatcher.context.settings
        self._stale_after_ms = round(settings.stale_after * 1000)
        self._horizon_ms = HORIZON_MS + round(2000 * settings.heartbeat)
        self._loop = asyncio.get_running_loop()
        self._is_skewed = False
        self._heartbeat: Heartbeat | None = None
        self._is_leaving = False
        self._is_rejoining = False
        self._loop_watch = LoopWatch()

    async def join(self) -> None:
        """Register the host and start its heartbeat. Must come before the host owns anything."""
        await self.set_clock()
        began_ms = elapsed_ms()
        await self._register(self._context.host_id)
        self._loop_watch.start()
        self._note_joined()
        connection = self._context.store.heartbeat_connection()
        if connection is None:
            return
        self._gate.confirm(began_ms)
        self._heartbeat = Heartbeat(
            connection,
            self._scope,
            self._beat_arrived,
            interval_s=self._settings.heartbeat,
            limit_s=self._settings.stale_after / 4,
            renewal=Renewal(
                self._worker.held, self._leases_lost, self._worker.lease_ms, self._context.sources
            ),
        )
        self._heartbeat.start()

    async def set_clock(self) -> None:
        """Synchronize with the store's clock, if it has one. Must come before any time is written."""
        began_ms = elapsed_ms()
        clock_ms = await self._context.store.clock_ms()
        self._synchronize(clock_ms, began_ms, elapsed_ms())

    def _synchronize(self, clock_ms: int | None, began_ms: int, ended_ms: int) -> None:
        """Set the host's clock. Warns once when this machine's clock is wrong, until it is right again."""
        sources = self._context.sources
        if clock_ms is None:
            return
        sources.synchronize(clock_ms, began_ms, ended_ms)
        was_skewed, self._is_skewed = self._is_skewed, abs(sources.skew_ms) > MAX_SKEW_MS
        if self._is_skewed and not was_skewed:
            log.warning(
                "this machine's clock is %.1f s %s that of %s, which counts for timers, retries and leases, so "
                "these are not affected; synchronize the clocks of both machines",
                abs(sources.skew_ms) / 1000,
                "ahead of" if sources.skew_ms > 0 else "behind",
                self._context.store.name,
            )

    async def leave(self) -> None:
        """Remove the host's row. The host has released all runs and work before."""
        self._is_leaving = True
        if self._heartbeat is not None:
            self._heartbeat.end()
            await asyncio.to_thread(self._heartbeat.join)
        await self._context.store.remove_host(self._context.host_id)
        host_id, store = self._context.host_id, self._context.store.name
        fields = {"event": "host_left", "host_id": host_id, "store": store}
        log.info("host %s left %s", host_id, store, extra=fields)

    def kill(self) -> None:
        """Stop the heartbeat and leave the row, as a crash would."""
        self._is_leaving = True
        self._loop_watch.end()
        if self._heartbeat is not None:
            self._heartbeat.end()

    def _note_joined(self) -> None:
        context, queues = self._context, list(self._worker.queues)
        programs = sorted(self._dispatcher.programs.names())
        log.info(
            "host %s joined %s; queues: %s; programs: %s",
            *(context.host_id, context.store.name, ", ".join(queues) or "none"),
            ", ".join(programs) or "none",
            extra={
                "event": "host_joined",
                "host_id": context.host_id,
                "store": context.store.name,
                "queues": queues,
                "programs": programs,
            },
        )

    async def _register(self, host_id: HostId) -> None:
        now = self._context.sources.now_ms()
        row = NewHost(host_id, self._stale_after_ms, self._worker.queues, now)
        await self._context.store.register_host(row)

    def _scope(self) -> HostScope:
        until_ms = self._context.sources.now_ms() + self._horizon_ms
        return HostScope(
            self._context.host_id,
            self._worker.queues,
            tuple(self._dispatcher.programs.names()),
            until_ms,
        )

    def _beat_arrived(self, host_id: HostId, snapshot: HostSnapshot | None, began_ms: int) -> None:
        # The event loop may be closed already.
        with suppress(RuntimeError):
            when = began_ms, elapsed_ms(), steady_ms()
            self._loop.call_soon_threadsafe(self._handle_beat, host_id, snapshot, when)

    def _leases_lost(self, claims: Sequence[Claim]) -> None:
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._worker.claims_lost, claims)

    def _handle_beat(
        self, host_id: HostId, snapshot: HostSnapshot | None, when: tuple[int, int, int]
    ) -> None:
        """Handle a beat that arrived. Without a snapshot, the host's row is gone: a peer took over.

        `when` is the start and the end of the beat on the clock that also counts while the machine sleeps, and its end
        on the steady clock.
        """
        began_ms, ended_ms, seen_ms = when
        if self._is_leaving or self._is_rejoining or host_id != self._context.host_id:
            return
        if snapshot is not None:
            try:
                self._context.store.require_known_schema(snapshot.schema_version)
            except SchemaTooNew as error:
                self._is_leaving = True
                self._owner.schema_outgrown(error)
                return
            self._synchronize(snapshot.clock_ms, began_ms, ended_ms)
            self._gate.confirm(began_ms)
            self._owner.snapshot_taken(snapshot, seen_ms)
            return
        self._is_rejoining = True
        self._context.spawn(self._rejoin())

    async def _rejoin(self) -> None:
        """A peer considered this host dead: continue under a new id, without the runs that were taken over.

        The id must be new, because the takeover of the old one may still be under way.
        """
        former, host_id = self._context.host_id, new_host()
        self._warn_of_rejoining(former, host_id)
        self._gate.shut()
        backoff = Backoff(self._context.outage)
        try:
            while not await self._try_to_rejoin(former, host_id, backoff):
                await backoff.wait()
        except StoreClosed:
            return
        finally:
            self._is_rejoining = False

    async def _try_to_rejoin(self, former: HostId, host_id: HostId, backoff: Backoff) -> bool:
        """Returns false if the store failed at any statement: the caller then repeats all of them."""
        began_ms, dispatcher = elapsed_ms(), self._dispatcher
        try:
            await self._register(host_id)
            if dispatcher.host_id == former:
                retire(former)
                dispatcher.become(host_id)
                self._owner.host_renamed()
            # No peer has taken the runs that this host began after its row was gone. Attempts of all lost runs end.
            await self._takeover.take_back(former)
            await self._worker.regain()
            await asyncio.gather(
                *(dispatcher.advance(run_id, nothing) for run_id in dispatcher.executor.runs)
            )
        except StoreClosed:
            raise
        except StoreError as error:
            backoff.blame(error, f"the registration of host {host_id}")
            return False
        backoff.renew()
        self._gate.confirm(began_ms)
        return True

    def _warn_of_rejoining(self, former: HostId, host_id: HostId) -> None:
        silent_s = self._gate.silent_s
        log.warning(
            "host %s was considered dead: its last heartbeat arrived %s ago, and it allows %g s. Other hosts took over "
            "its runs, and the store rejects what it still commits to them; it continues as host %s. If the process "
            "was not paused or cut off from its store, look for code that holds the interpreter for long (native "
            "code, an overloaded machine), or raise Settings.stale_after.",
            former,
            "a long time" if silent_s is None else f"{silent_s:.1f} s",
            self._settings.stale_after,
            host_id,
            extra={"event": "host_replaced", "host_id": host_id, "former_host_id": former},
        )
