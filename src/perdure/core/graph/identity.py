"""Names that follow from what a graph says: asked for twice, they are the same."""

import json
from typing import Any, Final

from perdure.core.ids import RunId, digest_of
from perdure.core.texts import require_text

RESPOND: Final = "respond"
"""What a signal is called that answers a step which has said that more will come."""


def mailbox_of(topic: str, key: str) -> RunId:
    """Where signals to a topic and a key wait for a hook. It has the form of a run's id, so that they are messages."""
    require_text("topic", topic)
    require_text("key", key)
    return RunId(f"r_{digest_of(b'mailbox', topic.encode(), key.encode()).hex()[:32]}")


def key_text(key: Any) -> str:
    """A key as it is compared: text as it is, any other value as JSON."""
    return key if isinstance(key, str) else json.dumps(key, sort_keys=True, separators=(",", ":"))
