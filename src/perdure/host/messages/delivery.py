"""Delivers messages to runs, those of one run in order of arrival."""

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any
from weakref import WeakValueDictionary

from perdure.authoring.context import Info
from perdure.core.errors import StaleFence
from perdure.core.ids import Guid, RunId, StepId, guid_run
from perdure.core.journal.state import Status
from perdure.core.messages import Message
from perdure.core.runs.acts import act_of, closed_verdict, is_act
from perdure.engine.programs.parked import ParkedRun
from perdure.engine.runs import messages as run_messages
from perdure.engine.runs.acts import act_refusal
from perdure.engine.runs.effects import AddHook
from perdure.engine.runs.warm import WarmRun
from perdure.host.backoff import is_transient
from perdure.host.messages.forwarding import forward, is_for_run
from perdure.host.messages.hook_matching import Matcher
from perdure.host.messages.pending import PendingReader
from perdure.host.messages.queue import MessageQueue
from perdure.host.runs.dispatcher import Dispatcher, nothing
from perdure.host.runs.logs import note_ending
from perdure.host.watchers import RunEnding
from perdure.store.commit.bundle import Bundle
from perdure.store.commit.fence import Fence
from perdure.store.rows.records import Run

log = logging.getLogger("perdure.host")

_COMMIT_S = 0.001
"""How long to wait for a commit under way before the message is offered again."""


class _Offer:
    """One message that is offered to its run, with the messages behind it in the queue, and the outcome.

    The run takes a message behind it along only if it simply accepts it. A message that the run would refuse stays in
    the queue, and is handled when it is first.
    """

    def __init__(self, message: Message, queue: MessageQueue) -> None:
        self.message = message
        self._queue = queue
        self.must_be_alone = False
        self.behind: list[Message] = []
        """The messages that were offered with it."""
        self._along: list[Message] = []
        self.must_wait_for_signals: bool | None = None
        """Whether signals that may not be matched to their hook yet precede it; `None` while unknown."""
        self.is_early = False
        """Whether to offer it again after the commit that is under way."""
        self.refused_under: Fence | None = None
        """The fence of the run when it refused the message."""
        self.is_held = False
        """Whether the run is paused and takes the message when it resumes."""
        self.refusal = "stale", "duplicate, or received after the step ended"
        """The state of a refused message, and the reason."""
        self.is_for_next_hook = False
        self.again: AddHook | None = None
        """The hook that it was matched to and that did not take it: the hook waits for another signal."""

    def take(self, run: WarmRun) -> None:
        message, self.refused_under, self.is_held = self.message, None, False
        self.behind, self._along = [], []
        if self.must_wait_for_signals is None:
            self.must_wait_for_signals = run_messages.is_hook_timeout(run.machine, message)
        if self.must_wait_for_signals:
            return
        # The last commit of the run is under way. Once that is durable, the run is closed.
        self.is_early = run.machine.is_over and not run.machine.record.changes
        if self.is_early:
            return
        if not self.must_be_alone:
            self.behind = self._queue.behind(message)
        taken = run_messages.take_messages(run, message, self.behind)
        if taken:
            self._along = self.behind[: taken - 1]
            return
        self.is_held = run_messages.is_held(run, message)
        if self.is_held:
            return
        if is_act(message.kind) and not run_messages.was_received(run, message):
            # A run that is over, but whose end is not committed, may be continued by one that takes the act.
            self.is_early = run.machine.is_over
            self.refusal = "dead", act_refusal(message)
        self.refused_under = run.fence
        self.again = None
        if message.kind.startswith("signal:"):
            self.again = run.machine.hook_again(message.step)
        self.is_for_next_hook = run_messages.is_for_next_hook(run, message)
        # The end of the hook must be durable first: if that commit failed after the signal was given back, the run
        # would wait for a hook that no signal can match.
        self.is_early = self.is_early or (self.is_for_next_hook and run.is_pinned)

    def settle(self) -> None:
        """The commit is durable: remove the messages that were taken along from the queue."""
        for message in self._along:
            self._queue.leave(message)


class Delivery:
    """Delivers due messages to runs that this host owns. One delivery per message at a time."""

    def __init__(self, dispatcher: Dispatcher, matcher: Matcher) -> None:
        self._dispatcher = dispatcher
        self._context = dispatcher.context
        self._matcher = matcher
        self._pending = PendingReader(dispatcher.context)
        self._delivering: dict[Guid, asyncio.Event] = {}
        """Deliveries under way. The event is set when the delivery ends."""
        self._queues: WeakValueDictionary[RunId, MessageQueue] = WeakValueDictionary()
        """Queues of a run or a chain, by the run that their messages were first sent to. Without them a message
        whose run is in memory would overtake messages that wait for a load or are being forwarded."""

    def deliver(self, message: Message) -> Coroutine[Any, Any, None]:
        """Deliver a due message that was read from the store, together with all messages before it.

        The call itself enqueues the message, not the await: so messages of one read are delivered together. The
        coroutine returns when the delivery has ended, whichever call carries it out. A message whose run belongs to
        another host stays pending.
        """
        return self._join(message, is_ordered=True)

    def deliver_sent(self, message: Message) -> Coroutine[Any, Any, None]:
        """As `deliver`, for a message that this host sent: another host may have sent one before it.

        Signals, cancels and timers are delivered in order. Other messages, such as results, concern one step only.
        """
        has_order = is_for_run(message) or message.kind == "timer"
        return self._join(message, is_ordered=not (has_order and self._pending.is_needed))

    def _join(self, message: Message, *, is_ordered: bool) -> Coroutine[Any, Any, None]:
        under_way = self._delivering.get(message.guid)
        if under_way is not None:
            return _wait_for(under_way)
        # First, because it refuses a damaged GUID: a delivery that never begins must not count as under way.
        queue = self._queue(guid_run(message.guid))
        self._delivering[message.guid] = asyncio.Event()
        queue.join(message, is_ordered=is_ordered)
        return self._deliver_in_order(message, queue)

    async def _deliver_in_order(self, message: Message, queue: MessageQueue) -> None:
        """Deliver the messages that precede this one in its queue, and then this one."""
        try:
            async with queue.lock:
                while message in queue:  # another delivery may have taken it along
                    if message.guid in queue.unordered:
                        await self._order(message, queue)
                        continue
                    first = queue.first
                    await self._deliver(first, queue)
                    queue.leave(first)
        except BaseException:
            # The message is still pending: those behind it must be ordered after it by a new read of the store.
            queue.mark_unordered(filter(is_for_run, queue.waiting))
            raise
        finally:
            queue.leave(message)
            self._delivering.pop(message.guid).set()

    async def _order(self, message: Message, queue: MessageQueue) -> None:
        """Read from the store which messages precede those that this host sent, and add them to the queue.

        A message that is no longer pending for this host leaves the queue: a run took it in, or another host owns it.
        """
        asked = queue.unordered
        pending, is_all = await self._pending.of(queue.origin)
        queue.merge(pending, asked, is_all=is_all)
        for each in pending:
            if each.guid not in self._delivering:
                self._delivering[each.guid] = asyncio.Event()
                self._context.spawn(self._deliver_in_order(each, queue))
        is_gone = is_all and all(each.guid != message.guid for each in pending)
        if is_gone and is_for_run(message):
            queue.leave(message)

    async def continue_run(self, run: WarmRun) -> None:
        """Advance a run that was continued without a wait, after the messages that are queued for its chain.

        So messages to a chain arrive even if none of its runs ever waits.
        """
        async with self._queue(run.chain or run.run_id).lock:
            await self._dispatcher.advance(run.run_id, nothing)

    def has_messages(self, origin: RunId) -> bool:
        """Whether messages that were first sent to that run wait behind the one that is being delivered, if any."""
        queue = self._queues.get(origin)
        return queue is not None and queue.has_more

    def _queue(self, origin: RunId) -> MessageQueue:
        return self._queues.setdefault(origin, MessageQueue(origin))

    async def _deliver(self, message: Message, queue: MessageQueue) -> None:
        current: Message | None = message
        while current is not None:
            current = (
                None
                if await self._offer(current, queue)
                else await self._handle_undeliverable(current)
            )

    async def _offer(self, message: Message, queue: MessageQueue) -> bool:
        """Offer the message to its run and write the outcome. False if this host can't advance the run."""
        if self._context.payloads is not None and message.payload is not None:
            await self._dispatcher.executor.requests.prefetch(message.payload)
        offer = _Offer(message, queue)
        while await self._advance(offer):
            if offer.must_wait_for_signals:
                await self._deliver_matched_signals(message)
                offer.must_wait_for_signals = False
            elif offer.is_early:
                await asyncio.sleep(_COMMIT_S)
            elif offer.is_held:
                return True  # it stays in the store
            elif offer.refused_under is None:
                offer.settle()
                return True
            elif offer.is_for_next_hook:
                await self._give_back(message, offer.refused_under)
                return True
            else:
                await self._mark(message, offer.refused_under, *offer.refusal, offer.again)
                return True
        return False

    async def _advance(self, offer: _Offer) -> bool:
        """False if this host can't advance the run (`Dispatcher.advance`)."""
        run_id = offer.message.run_id
        is_cancel = offer.message.kind.startswith("cancel")
        while True:
            try:
                return await self._dispatcher.try_to_advance(
                    run_id, offer.take, may_cut_in=is_cancel
                )
            except Exception as error:
                if is_transient(error):
                    raise
                if not offer.behind:
                    await self._dispatcher.park_unwritable(run_id, error)
                    return False
                # One of the messages behind it may be the cause.
                log.warning(
                    "run %s takes its messages one by one; together they failed: %r", run_id, error
                )
                offer.must_be_alone = True

    async def _deliver_matched_signals(self, timer: Message) -> None:
        """Deliver the pending signals for the hook of a timeout before the timeout, even those not matched yet."""
        await self._matcher.look_now()
        for message, state, _ in await self._context.store.messages(timer.run_id):
            is_matched = guid_run(message.guid) != guid_run(timer.guid)  # and so in another queue
            if is_matched and message.step == timer.step and state == "pending":
                await self.deliver(message)

    async def _handle_undeliverable(self, message: Message) -> Message | None:
        """Handle a message whose run this host can't advance: the run is closed, parked or another host's.

        A parked run takes only cancels and acts. If the run was continued, returns the message as addressed to the last
        run of the chain.
        """
        run = await self._context.store.run(message.run_id)
        if run is None:
            return None
        is_mine = run.owner == self._context.host_id
        if is_mine and run.parked and message.kind.startswith(("cancel", "act:")):
            await self._act_on_parked(run, message)
        elif run.status is Status.CONTINUED and is_for_run(message):
            return await forward(self._context.store, run, message)
        elif run.is_over and await self._is_for_next_hook(message, run):
            await self._give_back(message, Fence(message.run_id, run.epoch))
        elif run.is_over:
            state = "dead" if is_for_run(message) else "stale"
            fence, reason = Fence(message.run_id, run.epoch), f"the run is {run.status}"
            if is_act(message.kind):
                if await self._context.store.taken_in_chain(run.origin, [message.guid]):
                    state = "stale"
                else:
                    reason = closed_verdict(act_of(message), reason)
            await self._mark(message, fence, state, reason)
        return None

    async def _act_on_parked(self, run: Run, message: Message) -> None:
        """Cancel a parked run; or reject the act, because there is no program to apply it."""
        context = self._context
        entries = await context.store.entries(run.run_id, 0, run.seq)
        parked = ParkedRun(run, entries)
        act = act_of(message) if is_act(message.kind) else None
        if is_act(message.kind) and (refusal := parked.refusal_of(act, message)) is not None:
            with suppress(StaleFence):
                await context.store.commit(parked.reject(act, message, refusal, context.sources))
            return
        found = await context.store.load(parked.possible_children())
        children = [child.run_id for child, _ in found if _may_be_open(child)]
        bundle = parked.cancel(message, children, context.codec, context.sources)
        with suppress(StaleFence):
            await context.store.commit(bundle)
            self._dispatcher.watchers.ended(
                run.run_id, None
            )  # callers read the outcome from the store
            reason = parked.reason_of(message)
            info = Info(run.run_id, run.program, run.version, run.key, StepId("root"))
            note_ending(info, RunEnding(Status.CANCELLED, None, reason), context.codec)
            for sent in bundle.messages:
                context.listener.message_sent(sent)

    async def _is_for_next_hook(self, message: Message, run: Run) -> bool:
        """Whether it was matched to a hook of this closed run, and no run of the chain has taken it in."""
        if not run_messages.is_matched(message, run.origin):
            return False
        return not await self._context.store.taken_in_chain(run.origin, [message.guid])

    async def _give_back(self, message: Message, fence: Fence) -> None:
        """Commits: a signal to topic and key whose hook is gone can match another hook."""
        assert message.step is not None  # noqa: S101 - it was matched
        bundle = Bundle()
        bundle.give_back(fence, message.guid, message.step)
        await self._write(message, fence, bundle)
        self._context.listener.hooks_changed()

    async def _mark(
        self,
        message: Message,
        fence: Fence,
        state: str,
        reason: str,
        again: AddHook | None = None,
    ) -> None:
        """Commits: the state of the message, and the reason. The hook `again` waits for another signal."""
        bundle = Bundle()
        bundle.mark(fence, message.guid, state, reason)
        if again is not None:
            bundle.hook(fence, *again)
        await self._write(message, fence, bundle)
        if again is not None:
            self._context.listener.hooks_changed()

    async def _write(self, message: Message, fence: Fence, bundle: Bundle) -> None:
        try:
            await self._context.store.commit(bundle)
        except StaleFence:
            # Another host owns the run and its messages now, or this host under a later epoch: it must load it again.
            self._dispatcher.forget(message.run_id, before_epoch=fence.epoch + 1)


async def _wait_for(under_way: asyncio.Event) -> None:
    await under_way.wait()


def _may_be_open(run: Run) -> bool:
    """Whether the run is open, or was continued by one that may be."""
    return not run.is_over or run.status is Status.CONTINUED
