"""A line: messages that wait to be delivered one after the other, in the order in which they came."""

import asyncio
from itertools import islice

from perdure.core.ids import Guid
from perdure.core.messages import Message

LONGEST = 500
"""Messages that one turn may take in: the program goes on for each, while others wait for the loop."""

HEAVIEST = 4 * 1024 * 1024
"""Bytes of their payloads: they are one commit, which those of other runs wait for."""


class Line:
    """Whoever has its `turn` delivers the first message, and may take along those behind it."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self._waiting: dict[Guid, Message] = {}

    def join(self, message: Message) -> None:
        """Stand at the end."""
        self._waiting[message.guid] = message

    def leave(self, message: Message) -> None:
        """It is dealt with, or nobody deals with it any more."""
        self._waiting.pop(message.guid, None)

    def __contains__(self, message: Message) -> bool:
        """Whether it is still to be delivered."""
        return message.guid in self._waiting

    def behind(self, first: Message) -> list[Message]:
        """Those directly behind a message that are for the same run, as many as one turn may take in."""
        found: list[Message] = []
        room = HEAVIEST - _weight(first)
        waiting = iter(self._waiting.values())
        # Whoever has the turn stands first, unless it began before others that had joined the line.
        while next(waiting, first).guid != first.guid:
            pass
        for message in islice(waiting, LONGEST - 1):
            room -= _weight(message)
            if message.run_id != first.run_id or room < 0:
                break
            found.append(message)
        return found


def _weight(message: Message) -> int:
    return len(message.payload or b"")
