"""Polls the store for due messages, work for the host's queues, and runs without a living owner.

Level-triggered: each poll finds all that is due, whatever earlier polls missed. Hints only save time.
"""

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any

from perdure.core.errors import PerdureError, StoreClosed, StoreError
from perdure.core.ids import Guid
from perdure.core.messages import Message, Work
from perdure.engine.runs.warm import WarmRun
from perdure.host.backoff import Backoff
from perdure.host.clock import steady_ms
from perdure.host.cluster.membership import HORIZON_MS
from perdure.host.cluster.takeover import Takeover
from perdure.host.cluster.takeover_loop import TakeoverLoop
from perdure.host.messages.delivery import Delivery
from perdure.host.messages.hook_matching import Matcher
from perdure.host.runs.dispatcher import Dispatcher
from perdure.host.runs.remote import RemoteRuns
from perdure.host.schedules.ticker import Ticker
from perdure.host.tasks.queues import QueueWorker
from perdure.store.rows.hosts import HostScope, HostSnapshot

log = logging.getLogger("perdure.host")

BATCH = 500
"""Messages per read."""


class Poller:
    """Polls at once when something is due, and otherwise once per interval.

    A host with a heartbeat gets a snapshot of the store with each beat (`show`), and its poller reads none itself.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        worker: QueueWorker,
        takeover: Takeover,
        takeovers: TakeoverLoop,
        remote_runs: RemoteRuns,
        ticker: Ticker,
        interval_ms: int,
    ) -> None:
        self._dispatcher = dispatcher
        self._context = dispatcher.context
        self._worker = worker
        self._takeover = takeover
        self._takeovers = takeovers
        self._remote_runs = remote_runs
        self._snapshot: HostSnapshot | None = None
        self._has_heartbeat = False
        self.matcher = Matcher(dispatcher.context)
        self.delivery = Delivery(dispatcher, self.matcher)
        self._interval_ms = interval_ms
        self._next_snapshot_ms = 0
        """On the clock of `Sources.elapsed_ms`."""
        self._next_due_ms: int | None = None
        self._ticker = ticker
        self._must_look = False
        """Whether to read a snapshot at once."""
        self._has_mail = False
        """Whether messages may have become due since the last read of due messages began."""
        self._has_work = False
        """Whether work may have become due, or a slot free, since the last claim began."""
        self._undeliverable: set[Guid] = set()
        """Messages whose rows are damaged: each is logged once."""
        self._awake = asyncio.Event()
        self._is_stopping = False
        self._loop_task: asyncio.Task[None] | None = None
        self._asked: list[asyncio.Future[None]] = []
        """Callers that wait for the next poll to end."""

    def show(self, snapshot: HostSnapshot, at_ms: int) -> None:
        """Use a snapshot that the heartbeat took at `at_ms` of the steady clock."""
        self._takeover.see(snapshot, at_ms)
        self._snapshot = snapshot
        self._has_heartbeat = True
        self._awake.set()

    def look_soon(self) -> None:
        """Read a snapshot of the store at once: a hint says that something concerns any host."""
        self._must_look = True
        self._awake.set()

    def deliver_soon(self) -> None:
        """Read the due messages at once: there may be new ones."""
        self._has_mail = True
        self._awake.set()

    def claim_soon(self) -> None:
        """Claim work at once: there may be more, or a slot for it."""
        self._has_work = True
        self._awake.set()

    def sent(self, message: Message) -> None:
        """A message that this host sent is durable."""
        if message.due_at_ms <= self._context.sources.now_ms():
            self._context.spawn(self.delivery.deliver_sent(message))
        else:
            self._expect(message.due_at_ms)

    def continue_runs(self, runs: Sequence[WarmRun]) -> None:
        for run in runs:
            if run.machine.is_busy:
                self._context.spawn(self._dispatcher.transitions.finish(run))
            elif not self._is_stopping:  # otherwise the next owner continues it
                self._context.spawn(self.delivery.continue_run(run))

    def queued(self, work: Work) -> None:
        """A task that this host put on a queue is durable."""
        if not self._worker.serves(work):
            return
        if work.available_at_ms <= self._context.sources.now_ms():
            self.claim_soon()
        else:
            self._worker.expect(work.available_at_ms)
            self._awake.set()

    def slot_freed(self) -> None:
        """A slot is free, and no step of this host's runs waits for one."""
        if self._worker.slot_freed():
            self.claim_soon()

    def _expect(self, due_at_ms: int) -> None:
        if self._next_due_ms is None or due_at_ms < self._next_due_ms:
            self._next_due_ms = due_at_ms
            self._awake.set()

    async def poll(self) -> None:
        """Poll once. Returns when all that was found is taken over, delivered or claimed."""
        await self._takeovers.wait()
        now = self._context.sources.now_ms()
        snapshot = await self._latest_snapshot(now)
        if snapshot is not None:
            await self._prepare(snapshot)
            took = await self._takeover.take(snapshot)
            self._note_due(snapshot, now)
            if self._must_tick(now):
                await self._ticker.tick()
            if not (took or self._must_deliver(now) or self._must_claim(now)):
                return
        await self._deliver(now)
        await self._claim()

    async def serve(self) -> None:
        """Poll once, and deliver or claim what is due. Runs without a living owner are taken over in the background."""
        now = self._context.sources.now_ms()
        snapshot = await self._latest_snapshot(now)
        if snapshot is not None:
            await self._prepare(snapshot)
            self._takeovers.begin(snapshot)
            self._note_due(snapshot, now)
        if self._must_tick(now):
            await self._ticker.tick()
        if self._must_deliver(now):
            await self._deliver(now)
        if self._must_claim(now):
            await self._claim()

    async def _prepare(self, snapshot: HostSnapshot) -> None:
        """Read new deployments, match hooks, and look for changes of other hosts' runs that callers wait for."""
        self._context.listener.snapshot_read(snapshot)
        await self._dispatcher.catalogue.refresh_if_changed(snapshot.deployments)
        if snapshot.has_pairs:
            await self.matcher.look_now()
        self._remote_runs.look()

    def _note_due(self, snapshot: HostSnapshot, now: int) -> None:
        """Note when messages, work and schedules are due next."""
        self._ticker.note_next_due(snapshot.next_tick_ms)
        if snapshot.next_due_ms is not None:
            self._expect(snapshot.next_due_ms)
        if self._worker.note_next_due(snapshot.next_work_ms, now):
            self._has_work = True

    def _must_tick(self, now: int) -> bool:
        return _is_due(self._ticker.next_due_ms, now)

    def _must_deliver(self, now: int) -> bool:
        return self._has_mail or _is_due(self._next_due_ms, now)

    def _must_claim(self, now: int) -> bool:
        return self._has_work or _is_due(self._worker.next_due_ms, now)

    async def _claim(self) -> None:
        self._has_work = False
        await self._worker.poll()

    async def _deliver(self, now: int) -> None:
        """Deliver the messages that are due, and note when the next ones are."""
        self._has_mail = False
        await self._deliver_due(now)
        self._next_due_ms = None
        # A message sent during the read may be due earlier than what the read returns.
        due = await self._next_due(now)
        if due is not None:
            self._expect(due)

    async def _latest_snapshot(self, now: int) -> HostSnapshot | None:
        """The latest snapshot: the heartbeat's, or one read here if the interval is over."""
        snapshot, self._snapshot = self._snapshot, None
        elapsed = self._context.sources.elapsed_ms()
        is_late = not self._has_heartbeat and elapsed >= self._next_snapshot_ms
        if snapshot is None and (self._must_look or is_late):
            self._must_look = False
            context, queues = self._context, self._worker.queues
            programs = tuple(self._dispatcher.programs.names())
            scope = HostScope(context.host_id, queues, programs, now + HORIZON_MS)
            snapshot = await context.store.host_snapshot(scope)
            self._takeover.see(snapshot, steady_ms())
        if snapshot is not None:
            self._next_snapshot_ms = elapsed + self._interval_ms
        return snapshot

    async def _deliver_due(self, now: int) -> None:
        context, tried = self._context, None
        while messages := await context.store.due_messages(context.host_id, now, BATCH):
            delivering = self._deliveries(messages)
            for outcome in await asyncio.gather(*delivering, return_exceptions=True):
                if isinstance(outcome, StoreError):
                    raise outcome
                if isinstance(outcome, Exception):
                    context.fail(outcome)
            if len(messages) < BATCH or messages == tried:
                return
            tried = messages

    def _deliveries(self, messages: Sequence[Message]) -> list[Coroutine[Any, Any, None]]:
        """Begin the deliveries. A message with a damaged row stays where it is, and does not hold up others."""
        begun = []
        for message in messages:
            try:
                begun.append(self.delivery.deliver(message))
            except PerdureError as error:
                if message.guid not in self._undeliverable:
                    self._undeliverable.add(message.guid)
                    log.warning(
                        "a message to run %s can't be read, and stays pending: %s",
                        message.run_id,
                        error,
                    )
        return begun

    async def _next_due(self, now: int) -> int | None:
        context = self._context
        due = await context.store.next_due(context.host_id, now + HORIZON_MS)
        if due is None or due > now:
            return due
        # Overdue messages belong to parked runs or wait for a slot: the next snapshot shows them again.
        # Until then only later messages count.
        ahead = await context.store.due_messages(context.host_id, now + self._interval_ms, BATCH)
        return min((each.due_at_ms for each in ahead if each.due_at_ms > now), default=None)

    async def look(self) -> None:
        """Have the loop poll at once, and wait until it has handled what it found."""
        polled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._asked.append(polled)
        self._awake.set()
        await polled

    def start(self) -> None:
        self._loop_task = asyncio.get_running_loop().create_task(self._poll_loop())

    async def stop(self, grace_s: float) -> None:
        """Let a poll under way end within `grace_s`: if interrupted, it leaves steps in doubt that never began."""
        self._is_stopping = True
        self._awake.set()
        self._takeovers.stop()
        tasks = self._takeovers.tasks | (
            {self._loop_task} if self._loop_task is not None else set()
        )
        if tasks:
            await asyncio.wait(tasks, timeout=grace_s)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    def kill(self) -> None:
        self._takeovers.kill()
        if self._loop_task is not None:
            self._loop_task.cancel()

    async def _poll_loop(self) -> None:
        backoff = Backoff(self._context.outage)
        while not self._is_stopping:
            try:
                asked = list(self._asked)
                await (self.poll() if asked else self.serve())
                for polled in asked:
                    self._asked.remove(polled)
                    if not polled.done():
                        polled.set_result(None)
                await self._wait_until_due()
            except StoreClosed:
                return
            except StoreError as error:
                backoff.blame(error, "the poll for messages and work")
            except Exception as error:  # a host that stopped polling would advance no run
                self._context.fail(error)
            else:
                backoff.renew()
                continue
            await backoff.wait()

    async def _wait_until_due(self) -> None:
        """Wait until something is due, a hint arrives, or the interval is over."""
        self._awake.clear()
        now, elapsed = self._context.sources.now_ms(), self._context.sources.elapsed_ms()
        times = (self._next_due_ms, self._worker.next_due_ms, self._ticker.next_due_ms)
        waits = [time - now for time in times if time is not None]
        if not self._has_heartbeat:
            waits.append(self._next_snapshot_ms - elapsed)
        wait = min(waits, default=None)
        if self._is_stopping or self._snapshot is not None or (wait is not None and wait <= 0):
            return
        if self._asked or self._has_mail or self._has_work or self._must_look:
            return
        with suppress(TimeoutError):
            # One millisecond more: too early, nothing would be due.
            async with asyncio.timeout(None if wait is None else (wait + 1) / 1000):
                await self._awake.wait()


def _is_due(at_ms: int | None, now_ms: int) -> bool:
    return at_ms is not None and at_ms <= now_ms
