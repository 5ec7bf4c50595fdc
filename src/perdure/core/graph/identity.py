"""Names that follow from what a graph says: asked for twice, they are the same."""

from perdure.core.ids import RunId, digest_of
from perdure.core.texts import require_text


def mailbox_of(topic: str, key: str) -> RunId:
    """Where signals to a topic and a key wait for a hook. It has the form of a run's id, so that they are messages."""
    require_text("topic", topic)
    require_text("key", key)
    return RunId(f"r_{digest_of(b'mailbox', topic.encode(), key.encode()).hex()[:32]}")
