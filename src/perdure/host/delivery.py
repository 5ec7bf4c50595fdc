"""Messages on their way into runs: those of one run in the order in which they came."""

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any
from weakref import WeakValueDictionary

from perdure.core.errors import StaleFence
from perdure.core.ids import Guid, RunId, guid_run
from perdure.core.journal.state import Status
from perdure.core.messages import Message
from perdure.engine.replay import facts
from perdure.engine.replay.effects import Hook
from perdure.engine.replay.parked import ParkedRun
from perdure.engine.replay.warm import WarmRun
from perdure.host.forwarding import forward, is_asked_for
from perdure.host.hooks import Matcher
from perdure.host.host import Host, is_passing, nothing
from perdure.host.line import Line
from perdure.store.bundle import Bundle
from perdure.store.primitives import Fence
from perdure.store.records import Run

log = logging.getLogger("perdure.host")

_COMMIT_S = 0.001
"""How long to leave a run alone that is about to be over."""


class _Offer:
    """A message that is offered to its run with those behind it in line, and what came of it.

    Those are taken along if nothing else is to be done with them; any other fate they meet when they are first.
    """

    def __init__(self, message: Message, line: Line) -> None:
        self.message = message
        self._line = line
        self.must_be_alone = False
        self.behind: list[Message] = []
        """What was offered with it."""
        self._along: list[Message] = []
        self.must_wait_for_mail: bool | None = None
        """Whether signals go first, and may not have found their hook; `None` as long as that is not known."""
        self.is_early = False
        """Whether it is to be offered again when a commit that is under way is durable."""
        self.refused_under: Fence | None = None
        """What the run was when it had no use for the message."""
        self.is_for_next_hook = False
        self.again: Hook | None = None
        """The hook that it was matched to in vain, and that waits on."""

    def take(self, run: WarmRun) -> None:
        message, self.refused_under = self.message, None
        self.behind, self._along = [], []
        if self.must_wait_for_mail is None:
            self.must_wait_for_mail = facts.is_after_mail(run.machine, message)
        if self.must_wait_for_mail:
            return
        # Its last commit is under way: when that is durable the run is closed.
        self.is_early = run.machine.is_over and not run.machine.record.changes
        if self.is_early:
            return
        if not self.must_be_alone:
            self.behind = self._line.behind(message)
        taken = facts.take_in_line(run, message, self.behind)
        if taken:
            self._along = self.behind[: taken - 1]
            return
        self.refused_under = run.fence
        self.again = None
        if message.kind.startswith("signal:"):
            self.again = run.machine.hook_again(message.step)
        self.is_for_next_hook = facts.is_for_next_hook(run, message)
        # That the hook is gone must be durable first: else it would wait, and nobody find it.
        self.is_early = self.is_for_next_hook and run.in_flight > 0

    def settle(self) -> None:
        """It is durable what the run made of it: those that it took along are done with, too."""
        for message in self._along:
            self._line.leave(message)


class Delivery:
    """Hands messages that are due to their runs, each once at a time."""

    def __init__(self, host: Host, matcher: Matcher) -> None:
        self._host = host
        self._matcher = matcher
        self._delivering: dict[Guid, asyncio.Event] = {}
        """What is under way, and how to wait for it."""
        self._lines: WeakValueDictionary[RunId, Line] = WeakValueDictionary()
        """Where the messages of a run, or of a chain, queue by the run that they were first sent to: one that
        finds its run in memory must not overtake those that wait for it to be loaded, or are forwarded."""

    def deliver(self, message: Message) -> Coroutine[Any, Any, None]:
        """Hand a message that is due to its run, if that is ours. Returns when it is dealt with, by whomsoever.

        It stands in line from now on, and not when it is awaited: those that come together are seen together.
        """
        under_way = self._delivering.get(message.guid)
        if under_way is not None:
            return _over(under_way)
        done = self._delivering[message.guid] = asyncio.Event()
        line = self._line(guid_run(message.guid))
        line.join(message)
        return self._deliver_in_turn(message, line, done)

    async def _deliver_in_turn(self, message: Message, line: Line, done: asyncio.Event) -> None:
        try:
            async with line.turn:
                if message in line:  # and was not taken along by another
                    await self._deliver(message, line)
        finally:
            line.leave(message)
            del self._delivering[message.guid]
            done.set()

    async def go_on(self, run: WarmRun) -> None:
        """Write what is decided of a run that continued at once, when those before it in its line are through.

        So whatever is sent to its chain arrives, though none of its runs ever waits.
        """
        async with self._line(run.chain or run.run_id).turn:
            await self._host.advance(run.run_id, nothing)

    def _line(self, origin: RunId) -> Line:
        return self._lines.setdefault(origin, Line())

    async def _deliver(self, message: Message, line: Line) -> None:
        going: Message | None = message
        while going is not None:
            going = None if await self._offer(going, line) else await self._dismiss(going)

    async def _offer(self, message: Message, line: Line) -> bool:
        """Let its run take the message, or put it where it belongs. False if the run is not ours to advance."""
        offer = _Offer(message, line)
        while await self._advance(offer):
            if offer.must_wait_for_mail:
                await self._deliver_mail(message)
                offer.must_wait_for_mail = False
            elif offer.is_early:
                await asyncio.sleep(_COMMIT_S)
            elif offer.refused_under is None:
                offer.settle()
                return True
            elif offer.is_for_next_hook:
                await self._give_back(message, offer.refused_under)
                return True
            else:
                reason = "it came late, or again"
                await self._mark(message, offer.refused_under, "stale", reason, offer.again)
                return True
        return False

    async def _advance(self, offer: _Offer) -> bool:
        """False as `Host.advance` says."""
        run_id = offer.message.run_id
        while True:
            try:
                return await self._host.try_to_advance(run_id, offer.take)
            except Exception as error:
                if is_passing(error):
                    raise
                if not offer.behind:
                    await self._host.set_aside(run_id, error)
                    return False
                # It may be one of those behind it that the run can't take.
                log.warning("run %s takes in its messages one by one: %r", run_id, error)
                offer.must_be_alone = True

    async def _deliver_mail(self, timer: Message) -> None:
        """What was sent to the hook comes before the end of its time, though nobody has matched the two yet."""
        await self._matcher.look_now()
        for message, state, _ in await self._host.store.messages(timer.run_id):
            is_mail = guid_run(message.guid) != guid_run(timer.guid)  # and so in a line of its own
            if is_mail and message.step == timer.step and state == "pending":
                await self.deliver(message)

    async def _dismiss(self, message: Message) -> Message | None:
        """A message to a run that is over will never be taken; a parked run can only be cancelled.

        Returns the message as the run has it that goes on, if the run was continued.
        """
        run = await self._host.store.run(message.run_id)
        if run is None:
            return None
        if run.owner == self._host.host_id and run.parked and message.kind.startswith("cancel"):
            await self._cancel_parked(run, message)
        elif run.status is Status.CONTINUED and is_asked_for(message):
            return await forward(self._host.store, run, message)
        elif run.closed_at_ms is not None and await self._is_for_next_hook(message, run):
            await self._give_back(message, Fence(message.run_id, run.epoch))
        elif run.closed_at_ms is not None:
            state = "dead" if is_asked_for(message) else "stale"
            fence = Fence(message.run_id, run.epoch)
            await self._mark(message, fence, state, f"the run is {run.status}")
        return None

    async def _cancel_parked(self, run: Run, message: Message) -> None:
        host = self._host
        entries = await host.store.entries(run.run_id, 0, run.seq)
        parked = ParkedRun(run, entries)
        found = await host.store.load(parked.possible_children())
        children = [child.run_id for child, _ in found if _may_go_on(child)]
        bundle = parked.cancel(message, children, host.codec, host.sources)
        with suppress(StaleFence):
            await host.store.commit(bundle)
            host.watchers.ended(run.run_id, None)  # the store has it
            for sent in bundle.messages:
                host.on_message(sent)

    async def _is_for_next_hook(self, message: Message, run: Run) -> bool:
        """Whether it was matched to a hook of this run, which is over and has not had it."""
        if not facts.is_matched(message, run.origin):
            return False
        return not await self._host.store.taken_in_chain(run.origin, [message.guid])

    async def _give_back(self, message: Message, fence: Fence) -> None:
        """A signal to topic and key whose hook is gone is for the next one."""
        assert message.step is not None  # noqa: S101 - it was matched
        bundle = Bundle()
        bundle.give_back(fence, message.guid, message.step)
        await self._write(message, fence, bundle)
        self._host.on_hooks()

    async def _mark(
        self,
        message: Message,
        fence: Fence,
        state: str,
        reason: str,
        again: Hook | None = None,
    ) -> None:
        """Keep the message for whoever looks. The hook that it was matched to in vain waits for another."""
        bundle = Bundle()
        bundle.mark(fence, message.guid, state, reason)
        if again is not None:
            bundle.hook(fence, *again)
        await self._write(message, fence, bundle)
        if again is not None:
            self._host.on_hooks()

    async def _write(self, message: Message, fence: Fence, bundle: Bundle) -> None:
        try:
            await self._host.store.commit(bundle)
        except StaleFence:
            # The run is somebody else's by now, and so are its messages; or ours again, and to be loaded.
            self._host.forget(message.run_id, before_epoch=fence.epoch + 1)


async def _over(under_way: asyncio.Event) -> None:
    await under_way.wait()


def _may_go_on(run: Run) -> bool:
    """Whether it is open, or a run that continues it may be."""
    return run.closed_at_ms is None or run.status is Status.CONTINUED
