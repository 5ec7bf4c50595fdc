"""Sending signals, and sending them again: the same `id` names the same signal, so it must have the same value."""

from typing import Any

import msgspec

from perdure.authoring.definition import require_name
from perdure.authoring.response import OK, Response
from perdure.authoring.signal import MAX_SIGNAL_NAME
from perdure.authoring.texts import require_user_text
from perdure.core.codec import Codec
from perdure.core.errors import InputError, PayloadTooLarge, SignalReused
from perdure.core.graph.identity import key_text, mailbox_of
from perdure.core.ids import Guid, RunId
from perdure.core.journal.events import SignalDelivered
from perdure.core.large_payloads import value_bytes
from perdure.core.limits import MAX_KEY_LENGTH
from perdure.core.messages import AT_ONCE, Message
from perdure.core.replay.identity import signal_guid
from perdure.host.context import HostContext
from perdure.host.runs.dispatcher import Dispatcher
from perdure.host.transactions.joining import current
from perdure.store.commit.bundle import Bundle
from perdure.store.store import Store

ENTRIES_PER_READ = 1000


class OutgoingSignal(msgspec.Struct, frozen=True):
    """A signal with an `id`, about to be sent.

    `to` is the first run of a chain, or a mailbox. `of` is the type of the value. `what` names the signal in errors.
    """

    to: RunId
    guid: Guid
    payload: bytes
    what: str
    of: Any = object


def sender_of(dispatcher: Dispatcher, id: str | None) -> str:  # noqa: A002 - what users call it
    """The part of a signal's GUID that names its sender: random, or made from the `id` if the caller gives one."""
    if id is None:
        return dispatcher.sources.entropy(16).hex()
    return f"id:{require_user_text('the id of a signal', id, MAX_KEY_LENGTH)}"


async def send_to_mailbox(
    dispatcher: Dispatcher,
    topic: str,
    key: object,
    value: object,
    code: int,
    id: str | None,  # noqa: A002 - what users call it
    scope: str,
) -> None:
    """Commits: a signal in the mailbox of topic and key, for runs of the scope; inside a transaction, with that.

    Raises `SignalReused` if a signal with that `id` and another value waits there.
    """
    require_name("topic", topic, MAX_SIGNAL_NAME)
    scope = require_user_text("a scope", scope, least=0)
    mailbox = mailbox_of(topic, key_text(key), scope)
    guid = signal_guid(mailbox, topic, sender_of(dispatcher, id))
    codec = dispatcher.context.caller_codec
    payload = codec.encode(value if code == OK else Response(value, code))
    require_signal_size(dispatcher.context, payload)
    if id is not None:
        what = f"signal to topic {topic!r} and key {key!r:.200} with id {id!r}"
        await was_delivered(dispatcher, OutgoingSignal(mailbox, guid, payload, what))
    arrival = dispatcher.sources.arrival(mailbox)
    bundle = Bundle()
    bundle.enqueue(Message(mailbox, guid, f"signal:{topic}", AT_ONCE, arrival, payload=payload))
    joined = current(dispatcher)
    if joined is not None:
        await joined.send(bundle, None)
        return
    await dispatcher.store.commit(bundle)
    dispatcher.context.listener.hooks_changed()


def require_signal_size(context: HostContext, payload: bytes) -> None:
    """Raise `PayloadTooLarge` if the value of a signal exceeds `Settings.max_signal_bytes`."""
    most, size = context.settings.max_signal_bytes, value_bytes(payload)
    if 0 < most < size:
        raise PayloadTooLarge(
            f"the signal carries {size:,} bytes, over the limit of {most:,}",
            "send a reference, such as an ArtifactRef, or raise Settings.max_signal_bytes",
        )


async def was_delivered(dispatcher: Dispatcher, signal: OutgoingSignal) -> bool:
    """Whether a run has received the signal already, so that there is nothing to send.

    Raises `SignalReused` if it was sent with another value, received or not. This reads before the send: of two
    signals sent at the same moment the first counts, and the second sender gets no error. Inside a transaction, the
    signals sent in it count, and those that others have committed. An erased payload is not compared.
    """
    joined = current(dispatcher)
    if joined is not None:
        _require_same_value(dispatcher.codec, signal, joined.sent_before(signal.guid))
    is_delivered = False
    for sent in await dispatcher.store.sent_before(signal.to, signal.guid):
        earlier = sent.payload
        if sent.is_taken and not is_delivered:
            is_delivered = True
            earlier = await _delivered_payload(dispatcher.store, sent.run_id, signal.guid)
        _require_same_value(dispatcher.codec, signal, earlier)
    return is_delivered


async def _delivered_payload(store: Store, run_id: RunId, guid: Guid) -> bytes | None:
    """The payload of a signal that the run has received, from its journal."""
    first = 0
    while entries := await store.entries(run_id, first, first + ENTRIES_PER_READ):
        for entry in entries:
            if isinstance(entry.event, SignalDelivered) and entry.event.guid == guid:
                return entry.event.payload
        first += len(entries)
    return None


def _require_same_value(codec: Codec, signal: OutgoingSignal, earlier: bytes | None) -> None:
    if earlier is not None and not _is_same_value(codec, signal, earlier):
        raise SignalReused(
            f"{signal.what} was sent before with another value",
            "give each signal an id of its own; with the same id send the same value",
        )


def _is_same_value(codec: Codec, signal: OutgoingSignal, earlier: bytes) -> bool:
    if earlier == signal.payload:
        return True
    try:
        return bool(codec.decode(earlier, signal.of) == codec.decode(signal.payload, signal.of))
    except InputError:
        return False
