"""Entries: an event at its place in the hash chain.

An entry's hash covers the hash before it, its place, its time, the event without its payload, and
SHA-256(nonce + payload). Because the chain holds only that digest, a payload can be erased (the
nonce with it, so that a short payload can't be guessed from the digest) and every hash still
verifies. A body whose texts are erased no longer has the bytes that its hash covers, so that
entry keeps its hash itself; a receipt says what the body is since then.
"""

from collections.abc import Iterable
from functools import reduce
from hashlib import sha256
from operator import or_
from struct import Struct

import msgspec

from perdure.core.errors import CorruptJournal, NotEncodable
from perdure.core.ids import RunId
from perdure.core.journal.events import EVENTS, Carrier, Event

NONCE_BYTES = 16
HASH_BYTES = 32

_NO_PAYLOAD = bytes(HASH_BYTES)
_PLACE = Struct(">qq").pack
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(reduce(or_, EVENTS)).decode
_replace = msgspec.structs.replace


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One row of a journal, as it is stored.

    `body` is the event's JSON without its payload. `sealed` is nonce + payload; once the payload is erased it
    is `None`, and `erased` keeps the digest in its place; if texts of the body were erased too, followed by the hash of
    the entry.
    """

    seq: int
    at_ms: int
    body: str
    prev: bytes
    sealed: bytes | None = None
    erased: bytes | None = None

    def __repr__(self) -> str:
        state = "" if self.erased is None else ", erased"
        size = 0 if self.sealed is None else len(self.sealed) - NONCE_BYTES
        return f"<Entry {self.seq} at {self.at_ms}: {self.body}, payload of {size:,} bytes{state}>"

    @property
    def is_redacted(self) -> bool:
        """Whether texts of the body were erased."""
        return self.erased is not None and len(self.erased) == 2 * HASH_BYTES

    @property
    def hash(self) -> bytes:
        if self.erased is not None and len(self.erased) == 2 * HASH_BYTES:
            return self.erased[HASH_BYTES:]
        if self.sealed is not None:
            digest = sha256(self.sealed).digest()
        else:
            digest = self.erased or _NO_PAYLOAD
        return _chain(self.prev, self.seq, self.at_ms, digest, self.body.encode())

    @property
    def payload(self) -> bytes | None:
        return None if self.sealed is None else self.sealed[NONCE_BYTES:]

    @property
    def event(self) -> Event:
        """The event; without its payload if that was erased."""
        try:
            event = _decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError, TypeError) as error:
            raise CorruptJournal(
                f"entry {self.seq} can't be read ({error})",
                "run `verify` to find what was changed, and restore the row from a backup",
            ) from error
        if self.sealed is None:
            return event
        if not isinstance(event, Carrier):
            raise CorruptJournal(
                f"entry {self.seq} has a payload, but {type(event).__name__} carries none",
                "run `verify` to find what was changed, and restore the row from a backup",
            )
        return _replace(event, payload=self.payload)


def genesis(run_id: RunId) -> bytes:
    """The hash in front of a run's first entry. It depends on the run, so one run's journal can't replace another's."""
    return sha256(b"perdure journal " + run_id.encode()).digest()


def seal(
    seq: int, at_ms: int, events: Iterable[Event], head: bytes, entropy: bytes
) -> tuple[tuple[Entry, ...], bytes]:
    """Entries for the events, numbered from `seq` and chained to the hash `head`; and the hash of the last entry.

    `entropy` holds one nonce for each event; only events with a payload use theirs.
    """
    entries: list[Entry] = []
    for event in events:
        sealed, digest = None, _NO_PAYLOAD
        if isinstance(event, Carrier) and event.payload is not None:
            used = NONCE_BYTES * len(entries)
            sealed = entropy[used : used + NONCE_BYTES] + event.payload
            digest = sha256(sealed).digest()
        body = body_of(event, seq)
        entries.append(Entry(seq, at_ms, body, head, sealed))
        head = _chain(head, seq, at_ms, digest, body.encode())
        seq += 1
    return tuple(entries), head


def body_of(event: Event, seq: int) -> str:
    """The event's JSON without its payload, for entry `seq`."""
    if isinstance(event, Carrier) and event.payload is not None:
        event = _replace(event, payload=None)
    try:
        return _encode(event).decode()
    except UnicodeEncodeError as error:
        raise NotEncodable(
            f"entry {seq} ({type(event).__name__}) has a text without a UTF-8 form ({error})",
            "take out the lone surrogates, which come from decoding bytes as text",
        ) from error


def _chain(prev: bytes, seq: int, at_ms: int, digest: bytes, body: bytes) -> bytes:
    return sha256(prev + _PLACE(seq, at_ms) + digest + body).digest()


def erase(entry: Entry) -> Entry:
    """The entry without its payload; its hash is unchanged."""
    if entry.sealed is None:
        return entry
    return _replace(entry, sealed=None, erased=sha256(entry.sealed).digest())


def redact(entry: Entry, body: str) -> Entry:
    """The entry with another body and without its payload; its hash is unchanged."""
    digest = erase(entry).erased or _NO_PAYLOAD
    mark = digest[:HASH_BYTES] + entry.hash
    return _replace(entry, body=body, sealed=None, erased=mark)


def event_to_json(event: Event) -> bytes:
    """The stable JSON form of an event, payload included (as base64)."""
    return _encode(event)


def event_from_json(text: bytes) -> Event:
    try:
        return _decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptJournal(
            f"not an event ({error})", "pass the JSON form that `event_to_json` gives"
        ) from error
