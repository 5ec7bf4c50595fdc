"""Sends hints to the other processes of the store after commits that concern them, and passes on those that arrive.

Hints save other processes the wait for their next poll. All that one event loop iteration has for a process becomes one
hint, and while a hint is being sent, the next one collects what follows. Without other processes nothing is sent.
"""

import asyncio
from collections.abc import Collection
from typing import Protocol

from perdure.core.errors import PerdureError
from perdure.core.hosts.hints import Awaited, Hint, OutgoingHint, decode_hint
from perdure.core.ids import HostId, RunId
from perdure.core.messages import Message, Work
from perdure.host.context import HostContext
from perdure.store.hints import HintChannel

REPEAT_MS = 10_000
"""How often a process repeats that its callers wait for other processes."""

LISTENING_MS = 3 * REPEAT_MS
"""How long a process counts as one whose callers wait."""

MAX_ADDRESSES = 1000
"""Runs whose owners are read in one statement."""


class HintListener(Protocol):
    """The host, which acts on hints."""

    def hint_arrived(self, hint: Hint) -> None: ...

    def hints_lost(self) -> None:
        """Hints may have been lost."""

    def message_kept(self, message: Message) -> None:
        """A message that this process sent is for a run that no other host owns."""


class Hints:
    """Belongs to the event loop that made it. `open` comes before anything is sent."""

    def __init__(
        self, context: HostContext, listener: HintListener, *, assumes_hosts: bool = False
    ) -> None:
        """With `assumes_hosts` it sends even if it has seen no other process: a front end sees none."""
        self._context = context
        self._listener = listener
        self._assumes_hosts = assumes_hosts
        self._channel: HintChannel | None = None
        self._peers: set[HostId] = set()
        """Other hosts, by the latest snapshot and by the hints since."""
        self._audience = context.watchers.audience
        self._next_ask_ms = dict.fromkeys(Awaited, 0)
        self._to_all = OutgoingHint()
        self._to_one: dict[HostId, OutgoingHint] = {}
        self._unaddressed: list[Message] = []
        """Messages to runs of which this process does not know the owner."""
        self._is_scheduled = False
        self._sending: asyncio.Task[None] | None = None

    async def open(self, channel: HintChannel | None) -> None:
        """Begin to receive, and announce this process. `channel` passes what arrives to `receive`."""
        self._channel = channel
        if channel is not None:
            await channel.open()
            self._to_all.look = True
            await self.flush()

    async def rename(self) -> None:
        """The host continues under another id."""
        if self._channel is not None:
            await self._channel.rename(self._context.host_id)

    def close(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    # Whom hints may concern

    def see(self, peers: Collection[HostId]) -> None:
        """These hosts, this one among them, are registered. Called with each snapshot of the store."""
        self._expire()
        self._peers = {peer for peer in peers if peer != self._context.host_id}

    @property
    def has_receivers(self) -> bool:
        """Whether there is any other process, as far as known."""
        if self._channel is None:
            return False
        return self._assumes_hosts or bool(self._peers) or any(self._audience.values())

    # What commits leave for other processes

    def message_sent(self, message: Message, owner: HostId | None) -> bool:
        """A message is durable. Returns whether it may be another host's; if not, the caller delivers it.

        Without an `owner` of the run, it is read: `message_kept` follows if the message is for no other living host.
        """
        if not self.has_receivers or message.due_at_ms > self._context.sources.now_ms():
            return False
        if owner == self._context.host_id:
            return False
        if owner is not None:
            self._for(owner).messages = True
        else:
            self._unaddressed.append(message)
        self._schedule()
        return True

    def work_queued(self, work: Work) -> None:
        """A task is on its queue."""
        if self.has_receivers and work.available_at_ms <= self._context.sources.now_ms():
            self._to_all.queues.add(work.queue)
            self._schedule()

    def signals_broadcast(self) -> None:
        """Messages to runs of any host are durable."""
        if self.has_receivers:
            self._to_all.messages = True
            self._schedule()

    def run_changed(self, run_id: RunId, change: Awaited) -> None:
        """A run has ended or was parked, or its journal or a stream of it has grown."""
        hosts = self._audience[change]
        for host in hosts:
            self._for(host).changed.add(run_id)
        if hosts:
            self._schedule()

    def look(self) -> None:
        """Something is in the store that concerns any host, such as a run without an owner."""
        if self.has_receivers:
            self._to_all.look = True
            self._schedule()

    def ask_for(self, change: Awaited) -> None:
        """Callers in this process wait for such changes of other processes' runs: ask these for hints."""
        now_ms = self._context.sources.elapsed_ms()
        if self._channel is not None and now_ms >= self._next_ask_ms[change]:
            self._next_ask_ms[change] = now_ms + REPEAT_MS
            self._to_all.asked.add(change)
            self._schedule()

    # Sending

    def _for(self, host: HostId) -> OutgoingHint:
        hint = self._to_one.get(host)
        if hint is None:
            hint = self._to_one[host] = OutgoingHint()
        return hint

    def _schedule(self) -> None:
        """Send when this iteration of the event loop is over: commits of one group are settled in one iteration."""
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        if self._channel is not None and (self._sending is None or self._sending.done()):
            self._sending = asyncio.get_running_loop().create_task(self.flush())

    async def flush(self) -> None:
        """Send all that there is to send."""
        self._is_scheduled = True
        try:
            while (channel := self._channel) is not None and self._has_more:
                await self._address()
                await self._send(channel)
        finally:
            self._is_scheduled = False

    @property
    def _has_more(self) -> bool:
        return bool(self._unaddressed or self._to_one) or not self._to_all.is_empty

    async def _send(self, channel: HintChannel) -> None:
        sender = self._context.host_id
        to_all, self._to_all = self._to_all, OutgoingHint()
        to_one, self._to_one = self._to_one, {}
        if not to_all.is_empty:
            await channel.send(None, to_all.encode(sender))
        for host, hint in to_one.items():
            await channel.send(host, hint.encode(sender))

    async def _address(self) -> None:
        """Read the owners of runs that messages were sent to."""
        messages = self._unaddressed[:MAX_ADDRESSES]
        del self._unaddressed[:MAX_ADDRESSES]
        if not messages:
            return
        context, owners = self._context, {}
        try:
            runs = await context.store.runs(sorted({each.run_id for each in messages}))
            owners = {run.run_id: None if run.is_over else run.owner for run in runs}
        except PerdureError:
            pass  # polling finds them
        for message in messages:
            owner = owners.get(message.run_id)
            if owner is None or owner == context.host_id:
                self._to_all.look |= owner is None
                self._listener.message_kept(message)
            else:
                self._for(owner).messages = True

    # Receiving

    def receive(self, data: bytes) -> None:
        if self._channel is None:
            return
        hint = decode_hint(data)
        if hint is None:
            self._listener.hints_lost()
        elif hint.sender != self._context.host_id:
            self._note_sender(hint)
            self._listener.hint_arrived(hint)

    def _note_sender(self, hint: Hint) -> None:
        now_ms = self._context.sources.elapsed_ms()
        if not (hint.awaits or hint.follows):
            self._peers.add(hint.sender)
        for change, asks in ((Awaited.END, hint.awaits), (Awaited.GROWTH, hint.follows)):
            hosts = self._audience[change]
            if asks and hint.sender not in hosts:
                # What it waits for may have happened since it read the store.
                self._for(hint.sender).has_more = True
                self._schedule()
            if asks:
                hosts[hint.sender] = now_ms + LISTENING_MS

    def _expire(self) -> None:
        """Forget the processes that have not asked again."""
        now_ms = self._context.sources.elapsed_ms()
        for hosts in self._audience.values():
            for host in [host for host, until_ms in hosts.items() if until_ms <= now_ms]:
                del hosts[host]
