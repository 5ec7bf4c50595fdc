"""Messages on their way into runs: those of one run in the order in which they came."""

import asyncio
from contextlib import suppress
from weakref import WeakValueDictionary

from perdure.core.errors import StaleFence
from perdure.core.ids import RunId
from perdure.core.journal.state import Status
from perdure.core.messages import Message
from perdure.engine.replay import facts
from perdure.engine.replay.parked import ParkedRun
from perdure.engine.replay.warm import WarmRun
from perdure.host.host import Host
from perdure.host.watching import Ending
from perdure.store.bundle import Bundle
from perdure.store.primitives import Fence
from perdure.store.records import Run


class Delivery:
    """Hands messages that are due to their runs, each once at a time."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._delivering: set[str] = set()
        self._lines: WeakValueDictionary[RunId, asyncio.Lock] = WeakValueDictionary()
        """Where the messages of a run queue: one that finds its run in memory must not overtake
        those that wait for it to be loaded."""

    async def deliver(self, message: Message) -> None:
        """Hand a message that is due to its run, if that is ours."""
        if message.guid in self._delivering:
            return
        self._delivering.add(message.guid)
        try:
            async with self._lines.setdefault(message.run_id, asyncio.Lock()):
                await self._deliver(message)
        finally:
            self._delivering.discard(message.guid)

    async def _deliver(self, message: Message) -> None:
        refused_under: Fence | None = None

        def take(run: WarmRun) -> None:
            nonlocal refused_under
            refused_under = None if facts.take(run, message) else run.fence

        if not await self._host.advance(message.run_id, take):
            await self._dismiss(message)
        elif refused_under is not None:
            await self._mark(message, refused_under, "stale", "it came late, or again")

    async def _dismiss(self, message: Message) -> None:
        """A message to a run that is over will never be taken; a parked run can only be cancelled."""
        run = await self._host.store.run(message.run_id)
        if run is None:
            return
        if run.owner == self._host.host_id and run.parked and message.kind == "cancel":
            await self._cancel_parked(run, message)
        elif run.closed_at_ms is not None:
            is_asked_for = message.kind.startswith(("signal:", "cancel"))
            state = "dead" if is_asked_for else "stale"
            fence = Fence(message.run_id, run.epoch)
            await self._mark(message, fence, state, f"the run is {run.status}")

    async def _cancel_parked(self, run: Run, message: Message) -> None:
        host = self._host
        entries = await host.store.entries(run.run_id, 0, run.seq)
        parked = ParkedRun(run, entries)
        found = await host.store.load(parked.possible_children())
        children = [child.run_id for child, _ in found if child.closed_at_ms is None]
        bundle = parked.cancel(message, children, host.codec, host.sources)
        with suppress(StaleFence):
            await host.store.commit(bundle)
            host.watchers.ended(run.run_id, Ending(Status.CANCELLED, None))
            for sent in bundle.messages:
                host.on_message(sent)

    async def _mark(self, message: Message, fence: Fence, state: str, reason: str) -> None:
        bundle = Bundle()
        bundle.mark(fence, message.guid, state, reason)
        try:
            await self._host.store.commit(bundle)
        except StaleFence:
            # The run is somebody else's by now, and so are its messages; or ours again, and to be loaded.
            self._host.forget(message.run_id, before_epoch=fence.epoch + 1)
