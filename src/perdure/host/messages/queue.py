"""A queue of messages that are delivered one after the other, in order of arrival."""

import asyncio
from collections.abc import Iterable, Sequence
from itertools import islice

from perdure.core.ids import Guid, RunId
from perdure.core.messages import Message

MAX_BATCH = 500
"""How many messages a run takes in at once: the program resumes for each, and blocks the event loop meanwhile."""

MAX_BATCH_BYTES = 4 * 1024 * 1024
"""Bytes of payload that a run takes in at once: they are one commit, and commits of other runs wait for it."""


class MessageQueue:
    """The holder of `lock` delivers the first message, and may deliver the messages behind it along with it.

    A message is *unordered* while its position among messages of other hosts is unknown. Before the host delivers it,
    it reads from the store which messages precede it (`merge`).
    """

    def __init__(self, origin: RunId) -> None:
        """`origin` is the run or mailbox that the messages were first sent to."""
        self.origin = origin
        self.lock = asyncio.Lock()
        self._waiting: dict[Guid, Message] = {}
        self._unordered: set[Guid] = set()

    def join(self, message: Message, *, is_ordered: bool = True) -> None:
        """Append a message."""
        self._waiting[message.guid] = message
        if not is_ordered:
            self._unordered.add(message.guid)

    def leave(self, message: Message) -> None:
        """Remove a message: it was delivered, or its delivery was given up."""
        self._waiting.pop(message.guid, None)
        self._unordered.discard(message.guid)

    def __contains__(self, message: Message) -> bool:
        """Whether the message is still to be delivered."""
        return message.guid in self._waiting

    @property
    def has_more(self) -> bool:
        """Whether messages wait that are not being delivered."""
        return len(self._waiting) > self.lock.locked()

    @property
    def first(self) -> Message:
        return next(iter(self._waiting.values()))

    @property
    def waiting(self) -> list[Message]:
        return list(self._waiting.values())

    def mark_unordered(self, messages: Iterable[Message]) -> None:
        """The positions of these messages are unknown again."""
        self._unordered.update(message.guid for message in messages)

    @property
    def unordered(self) -> frozenset[Guid]:
        """The messages whose position among those of other hosts is unknown."""
        return frozenset(self._unordered)

    def merge(self, pending: Sequence[Message], asked: frozenset[Guid], *, is_all: bool) -> None:
        """Add the messages that the store holds for this queue, `pending`, and adopt the store's order.

        `asked` are the messages that were unordered before the read. If `pending` is complete (`is_all`), all of them
        are ordered now; otherwise only those in `pending`. A message that is not in the store (a result, a timer)
        keeps its position. A timer of `asked` is the exception: it goes behind all of `pending`, because those
        messages were durable before the timer ended.
        """
        rank = {message.guid: position for position, message in enumerate(pending)}
        left = iter(pending)
        ordered: dict[Guid, Message] = {}
        passed = 0
        for message in self._waiting.values():
            up_to = rank.get(message.guid, -1) + 1
            if message.guid in asked and message.guid not in rank:
                up_to = len(pending)
            for before in islice(left, max(0, up_to - passed)):
                ordered[before.guid] = before
            passed = max(passed, up_to)
            if message.guid not in rank:
                ordered[message.guid] = message
        ordered.update((message.guid, message) for message in left)
        self._waiting = ordered
        self._unordered -= asked if is_all else rank.keys()

    def behind(self, first: Message) -> list[Message]:
        """The ordered messages directly behind `first` that are for the same run, up to the limits of one batch."""
        found: list[Message] = []
        room = MAX_BATCH_BYTES - _payload_bytes(first)
        waiting = iter(self._waiting.values())
        # `first` is the head, unless its delivery began before that of messages ahead of it.
        while next(waiting, first).guid != first.guid:
            pass
        for message in islice(waiting, MAX_BATCH - 1):
            room -= _payload_bytes(message)
            if message.run_id != first.run_id or room < 0 or message.guid in self._unordered:
                break
            found.append(message)
        return found


def _payload_bytes(message: Message) -> int:
    return len(message.payload or b"")
