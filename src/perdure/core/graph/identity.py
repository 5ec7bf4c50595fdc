"""Names that follow from what a graph says: asked for twice, they are the same."""

import json
from typing import Any, Final

from perdure.core.errors import InputError
from perdure.core.ids import RunId, digest_of
from perdure.core.limits import MAX_KEY_LENGTH
from perdure.core.texts import require_text

_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode

RESPOND: Final = "respond"
"""What a signal is called that answers a step which has said that more will come."""


def mailbox_of(topic: str, key: str) -> RunId:
    """Where signals to a topic and a key wait for a hook. It has the form of a run's id, so that they are messages."""
    require_text("topic", topic)
    require_text("key", key)
    return RunId(f"r_{digest_of(b'mailbox', topic.encode(), key.encode()).hex()[:32]}")


def key_text(key: Any) -> str:
    """A key as it is compared: text as it is, any other value as JSON; a whole number is one, however it is written."""
    if isinstance(key, float) and key.is_integer():
        key = int(key)
    try:
        text = key if isinstance(key, str) else _encode(key)
    except (TypeError, ValueError):
        raise InputError(f"the key {key!r:.80} has no JSON form", "use text or numbers") from None
    if not text:
        raise InputError("a key is empty", "use text or numbers")
    require_text("a key", text, MAX_KEY_LENGTH)
    return text
