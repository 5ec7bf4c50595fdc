"""What a host looks for in its store: messages that are due, runs that nobody advances.

Level-triggered: whatever is there is found, however it got there and whatever was missed. Hints only make it quicker.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress

from perdure.core.errors import StoreClosed, StoreError
from perdure.core.messages import Message, Work
from perdure.engine.replay.warm import WarmRun
from perdure.host.census import Census
from perdure.host.clock import steady_ms
from perdure.host.delivery import Delivery
from perdure.host.hooks import Matcher
from perdure.host.host import Host
from perdure.host.patience import Patience
from perdure.host.queues import QueueWorker
from perdure.store.hosts import Glance, Scope

log = logging.getLogger("perdure.host")

BATCH = 500
"""Messages that are taken at a time."""

HORIZON_MS = 5_000
"""How far ahead a host looks for what is due: further than to its next look, and not through all timers."""


class Poller:
    """Looks once per interval while nothing happens, and at once when something is due.

    A host that gives signs of life is shown what there is with each of them, and asks for nothing itself.
    """

    def __init__(self, host: Host, worker: QueueWorker, census: Census, interval_ms: int) -> None:
        self._host = host
        self._worker = worker
        self._census = census
        self._glance: Glance | None = None
        self._is_shown = False
        self._matcher = Matcher(host)
        self._delivery = Delivery(host, self._matcher)
        self._interval_ms = interval_ms
        self._next_census_ms = 0
        self._next_due_ms: int | None = None
        self._awake = asyncio.Event()
        self._is_stopping = False
        self._loop_task: asyncio.Task[None] | None = None
        host.on_message = self.sent
        host.on_work = self._put
        host.waiting.on_slot = self._freed
        host.on_unfinished = self._go_on

    def show(self, glance: Glance, at_ms: int) -> None:
        """What the store held at that time of the steady clock, as the heartbeat saw it."""
        self._census.see(glance, at_ms)
        self._glance = glance
        self._is_shown = True
        self._awake.set()

    def sent(self, message: Message) -> None:
        """This host sent a message, and it is durable."""
        if message.due_at_ms <= self._host.sources.now_ms():
            self._host.spawn(self._delivery.deliver(message))
        else:
            self._expect(message.due_at_ms)

    def _go_on(self, runs: Sequence[WarmRun]) -> None:
        # A host that stops leaves them to whoever has them next.
        for run in () if self._is_stopping else runs:
            self._host.spawn(self._delivery.go_on(run))

    def _put(self, work: Work) -> None:
        if self._worker.serves(work):
            self._expect(work.available_at_ms)

    def _freed(self) -> None:
        if self._worker.is_full:
            self._worker.is_full = False
            self._expect(self._host.sources.now_ms())

    def _expect(self, due_at_ms: int) -> None:
        if self._next_due_ms is None or due_at_ms < self._next_due_ms:
            self._next_due_ms = due_at_ms
            self._awake.set()

    async def poll(self) -> None:
        """Look once, and take up what is found. Returns when all of it is dealt with."""
        now = self._host.sources.now_ms()
        glance = await self._look(now)
        if glance is not None:
            await self._host.catalogue.look_if_changed(glance.deployments)
            if glance.has_pairs:
                await self._matcher.look_now()
            took = await self._census.take(glance)
            if not took and not self._is_due(glance, now):
                return
        await self._deliver_due(now)
        self._next_due_ms = None
        # What is sent while the store is asked may be earlier than its answer.
        due = await self._next_due(now)
        if due is not None:
            self._expect(due)
        await self._worker.poll()

    async def _look(self, now: int) -> Glance | None:
        """What there is, if it is time to look."""
        glance, self._glance = self._glance, None
        if glance is None and not self._is_shown and now >= self._next_census_ms:
            host, queues = self._host, self._worker.queues
            programs = tuple(host.programs.names())
            scope = Scope(host.host_id, queues, programs, now + HORIZON_MS)
            glance = await host.store.glance(scope)
            self._census.see(glance, steady_ms())
        if glance is not None:
            self._next_census_ms = now + self._interval_ms
        return glance

    def _is_due(self, glance: Glance, now: int) -> bool:
        """Whether there are messages or work to take now; if not, when."""
        if glance.next_due_ms is not None:
            self._expect(glance.next_due_ms)
        has_work = self._worker.show(glance.next_work_ms, now)
        return has_work or (self._next_due_ms is not None and self._next_due_ms <= now)

    async def _deliver_due(self, now: int) -> None:
        host, tried = self._host, None
        while messages := await host.store.due_messages(host.host_id, now, BATCH):
            delivering = map(self._delivery.deliver, messages)
            for outcome in await asyncio.gather(*delivering, return_exceptions=True):
                if isinstance(outcome, StoreError):
                    raise outcome
                if isinstance(outcome, Exception):
                    host.on_failure(outcome)
            if len(messages) < BATCH or messages == tried:
                return
            tried = messages

    async def _next_due(self, now: int) -> int | None:
        host = self._host
        due = await host.store.next_due(host.host_id, now + HORIZON_MS)
        if due is None or due > now:
            return due
        # What was due and is still there is looked at with the next census: its run is parked, or its
        # task waits for a slot. Until then only what lies ahead counts.
        ahead = await host.store.due_messages(host.host_id, self._next_census_ms, BATCH)
        return min((each.due_at_ms for each in ahead if each.due_at_ms > now), default=None)

    def start(self) -> None:
        self._loop_task = asyncio.get_running_loop().create_task(self._poll_for_ever())

    async def stop(self, grace_s: float) -> None:
        """Let a look that is under way end. Cut short, it would leave steps in doubt that never began."""
        self._is_stopping = True
        self._awake.set()
        if self._loop_task is not None:
            await asyncio.wait([self._loop_task], timeout=grace_s)
            self._loop_task.cancel()
            await asyncio.wait([self._loop_task])

    def kill(self) -> None:
        if self._loop_task is not None:
            self._loop_task.cancel()

    async def _poll_for_ever(self) -> None:
        patience = Patience()
        while not self._is_stopping:
            try:
                await self.poll()
                await self._rest()
            except StoreClosed:
                return
            except StoreError as error:
                log.warning("asking the store again in %.2f s: %s", patience.delay_s, error)
            except Exception as error:  # a host that stopped looking would leave every run behind
                self._host.on_failure(error)
            else:
                patience.renew()
                continue
            await patience.wait()

    async def _rest(self) -> None:
        """Wait for the next thing that is due, or for the interval."""
        self._awake.clear()
        now = self._host.sources.now_ms()
        census = None if self._is_shown else self._next_census_ms
        times = (census, self._next_due_ms, self._worker.next_due_ms)
        until = min((time for time in times if time is not None), default=None)
        if self._is_stopping or self._glance is not None or (until is not None and until <= now):
            return
        with suppress(TimeoutError):
            # Rounded up: a moment too early nothing would be due.
            async with asyncio.timeout(None if until is None else (until - now + 1) / 1000):
                await self._awake.wait()
