"""Signals to whoever waits for a topic and a key."""

from perdure.authoring.definition import require_name
from perdure.authoring.response import OK, Response
from perdure.authoring.signal import MAX_SIGNAL_NAME
from perdure.authoring.texts import require_text
from perdure.client.resending import Sending, was_taken
from perdure.core.graph.identity import key_text, mailbox_of
from perdure.core.limits import MAX_KEY_LENGTH
from perdure.core.messages import Message
from perdure.core.replay.identity import signal_guid
from perdure.host.host import Host
from perdure.host.joining import current
from perdure.store.bundle import Bundle


def sender_of(host: Host, id: str | None) -> str:  # noqa: A002 - what users call it
    """Who sends: the same `id` names the same act of sending, whenever it is done."""
    if id is None:
        return host.sources.entropy(16).hex()
    return f"id:{require_text('the id of a signal', id, MAX_KEY_LENGTH)}"


async def send(
    host: Host,
    topic: str,
    key: object,
    value: object,
    code: int,
    id: str | None,  # noqa: A002 - what users call it
) -> None:
    """Commits: a signal in the mailbox of topic and key; with the transaction that the caller is in, if in one.

    Raises `SignalReused` if one with that `id` and another value waits there.
    """
    require_name("topic", topic, MAX_SIGNAL_NAME)
    mailbox = mailbox_of(topic, key_text(key))
    guid = signal_guid(mailbox, topic, sender_of(host, id))
    payload = host.codec.encode(value if code == OK else Response(value, code))
    if id is not None:
        what = f"signal to topic {topic!r} and key {key!r:.200} with id {id!r}"
        await was_taken(host, Sending(mailbox, guid, payload, what))
    now, arrival = host.sources.now_ms(), host.sources.arrival(mailbox)
    bundle = Bundle()
    bundle.enqueue(Message(mailbox, guid, f"signal:{topic}", now, arrival, payload=payload))
    joined = current(host)
    if joined is not None:
        await joined.send(bundle, None)
        return
    await host.store.commit(bundle)
    host.on_hooks()
