"""Names in graph runs: mailboxes, by which a signal finds who waits for it, and keys as text."""

import json
from typing import Any

from perdure.core.ids import RunId, digest_of


def mailbox_of(topic: str, key: str) -> RunId:
    """Where signals to a topic and key wait for a hook, and where a search key lists its runs."""
    return RunId(f"r_{digest_of(b'mailbox', topic.encode(), key.encode()).hex()[:32]}")


def key_text(key: Any) -> str:
    """A key as it is compared: text as it is, any other value as JSON."""
    return key if isinstance(key, str) else json.dumps(key, sort_keys=True, separators=(",", ":"))
