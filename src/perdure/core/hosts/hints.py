"""Hints: what one process tells others after a commit, so that they need not wait for their next poll.

A hint may be lost, late, doubled or false. It only makes a process read the store sooner; what the process does follows
from what it reads.
"""

from enum import Enum
from hashlib import sha256

import msgspec

from perdure.core.ids import HostId, RunId

MAX_HINT_BYTES = 7_500
"""Postgres limits a notification to 8,000 bytes."""


class Hint(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one process tells another."""

    sender: HostId
    messages: bool = False
    """Messages to runs that the receiver owns are due."""
    look: bool = False
    """Something concerns any host: runs without an owner, a new version of a graph, a host that joined or left."""
    queues: frozenset[str] = frozenset()
    """Work on these queues is due."""
    changed: frozenset[RunId] = frozenset()
    """These runs have ended, or their journal or a stream of theirs has grown."""
    has_more: bool = False
    """Whether more runs have changed than are listed."""
    awaits: bool = False
    """Whether callers in the sending process wait for the end of runs that other processes own."""
    follows: bool = False
    """Whether callers in the sending process follow journals or streams of such runs."""


class Awaited(Enum):
    """What callers in one process wait for, of runs that other processes own."""

    END = "end"
    GROWTH = "growth"
    """Of a journal or a stream."""


class OutgoingHint:
    """Collects what the next hint to a process will say."""

    __slots__ = ("asked", "changed", "has_more", "look", "messages", "queues")

    def __init__(self) -> None:
        self.messages = self.look = self.has_more = False
        self.asked: set[Awaited] = set()
        """What callers here wait for."""
        self.queues: set[str] = set()
        self.changed: set[RunId] = set()

    @property
    def is_empty(self) -> bool:
        return not (
            self.messages or self.look or self.queues or self.changed or self.has_more or self.asked
        )

    def encode(self, sender: HostId) -> bytes:
        """The hint as text, at most `MAX_HINT_BYTES` long: if the lists don't fit, the receiver looks at everything."""
        lists = frozenset(self.queues), frozenset(self.changed)
        data = _ENCODER.encode(self._hint(sender, *lists, look=self.look, has_more=self.has_more))
        if len(data) > MAX_HINT_BYTES:
            look = self.look or bool(self.queues)
            has_more = self.has_more or bool(self.changed)
            nothing: frozenset[str] = frozenset()
            short = self._hint(sender, nothing, frozenset(), look=look, has_more=has_more)
            data = _ENCODER.encode(short)
        return data

    def _hint(
        self,
        sender: HostId,
        queues: frozenset[str],
        changed: frozenset[RunId],
        *,
        look: bool,
        has_more: bool,
    ) -> Hint:
        flags = Awaited.END in self.asked, Awaited.GROWTH in self.asked
        return Hint(sender, self.messages, look, queues, changed, has_more, *flags)


def decode_hint(data: bytes | str) -> Hint | None:
    """The hint in a datagram or notification; `None` if it can't be read, for instance that of a newer Perdure."""
    try:
        return _DECODER.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def channel_name(host: HostId) -> str:
    """A short name for where a process receives its hints: names of sockets and of channels are limited."""
    return sha256(host.encode()).hexdigest()[:24]


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Hint)
