"""Deterministic ids of mailboxes, and the text form of keys."""

import json
from typing import Any, Final

from perdure.core.errors import InputError
from perdure.core.ids import RunId, digest_of
from perdure.core.limits import MAX_KEY_LENGTH, MAX_NAME_LENGTH
from perdure.core.texts import require_storable_text

_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode

RESPOND: Final = "respond"
"""Name of the signal that carries a further response of a step that responded with 202."""

ENTERED: Final = "entry"
"""The label of the entry of an answer, which precedes the answer itself."""

NO_KEY: Final = ""
"""The key of a hook that takes signals to its run. `key_text` refuses it, so nothing is ever sent to its mailbox."""


def mailbox_of(topic: str, key: str, scope: str = "") -> RunId:
    """The mailbox where signals to a topic and key wait for a hook of a run of that scope. It looks like a run id:
    signals are messages."""
    require_storable_text("topic", topic)
    require_storable_text("key", key)
    parts = (topic, key, scope) if scope else (topic, key)
    return RunId(f"r_{digest_of(b'mailbox', *map(str.encode, parts)).hex()[:32]}")


def key_text(key: Any) -> str:
    """A key as it is compared: text unchanged, other values as JSON; 1.0 equals 1."""
    if isinstance(key, float) and key.is_integer():
        key = int(key)
    try:
        text = key if isinstance(key, str) else _encode(key)
    except (TypeError, ValueError):
        raise InputError(f"the key {key!r:.80} has no JSON form", "use text or numbers") from None
    if not text:
        raise InputError("a key is empty", "use text or numbers")
    require_storable_text("a key", text, MAX_KEY_LENGTH)
    return text


def require_computed_name(node: str, name: object) -> str:
    """Check the name of a task, program or topic that an expression of a node computed."""
    if not isinstance(name, str) or not name:
        raise InputError(
            f"node {node!r} computes {name!r:.80} as a name", "use an expression for a text"
        )
    require_storable_text(f"the name that node {node!r} computes", name, MAX_NAME_LENGTH)
    return name
