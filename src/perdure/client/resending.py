"""Signals that are sent again: the same `id` names the same act of sending, so it has to say the same."""

from typing import Any

import msgspec

from perdure.core.codec import Codec
from perdure.core.errors import InputError, SignalReused
from perdure.core.ids import Guid, RunId
from perdure.core.journal.events import SignalDelivered
from perdure.host.host import Host
from perdure.host.joining import current
from perdure.store.store import Store

PAGE = 1000
"""Entries that are read at a time."""


class Sending(msgspec.Struct, frozen=True):
    """A signal with an id that is about to be sent `to` a chain, by its first run, or to a mailbox.

    `of` is the type of its value, and `what` names it for whoever is told that the id was used before.
    """

    to: RunId
    guid: Guid
    payload: bytes
    what: str
    of: Any = object


async def was_taken(host: Host, sending: Sending) -> bool:
    """Whether the signal was sent before and taken in: then there is nothing left to send.

    Raises `SignalReused` if it was sent before with another value, taken in or not. That is read before it is sent:
    of two that are sent at the same moment the first counts, and the other's sender is not told. In a transaction
    what was sent in it counts, and what others have committed. A payload that was erased is not compared.
    """
    joined = current(host)
    if joined is not None:
        _require_same(host.codec, sending, joined.sent_before(sending.guid))
    is_taken = False
    for sent in await host.store.sent_before(sending.to, sending.guid):
        before = sent.payload
        if sent.is_taken and not is_taken:
            is_taken = True
            before = await _delivered(host.store, sent.run_id, sending.guid)
        _require_same(host.codec, sending, before)
    return is_taken


async def _delivered(store: Store, run_id: RunId, guid: Guid) -> bytes | None:
    """What the signal said that the run has taken in."""
    first = 0
    while entries := await store.entries(run_id, first, first + PAGE):
        for entry in entries:
            if isinstance(entry.event, SignalDelivered) and entry.event.guid == guid:
                return entry.event.payload
        first += len(entries)
    return None


def _require_same(codec: Codec, sending: Sending, before: bytes | None) -> None:
    if before is not None and not _is_same(codec, sending, before):
        raise SignalReused(
            f"{sending.what} was sent before with another value",
            "give each signal an id of its own; with the same id send the same value",
        )


def _is_same(codec: Codec, sending: Sending, before: bytes) -> bool:
    if before == sending.payload:
        return True
    try:
        return bool(codec.decode(before, sending.of) == codec.decode(sending.payload, sending.of))
    except InputError:
        return False
