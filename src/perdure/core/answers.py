"""Where the answers to requests are stored: each is the only chunk of a stream of the run that answers."""

from typing import Final

from perdure.core.ids import Guid

RESERVED: Final = "perdure."
"""Names of streams with this beginning are the engine's own."""


def answer_stream(guid: Guid, *, is_rejection: bool) -> str:
    """The stream of the reply to the request that the signal `guid` brought, or of its rejection."""
    return f"{RESERVED}{'rejection' if is_rejection else 'reply'}:{guid}"
