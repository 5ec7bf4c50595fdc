"""Encodes what an attempt publishes and appends, and notes if it would expose a secret."""

from collections.abc import Callable

from perdure.core.codec import Codec, encode_named
from perdure.core.errors import SecretExposed
from perdure.core.secrets import refuse_secrets
from perdure.host.tasks.attempt import Attempt


def encode_sent(
    codec: Codec, attempt: Attempt, name: str, value: object, what: Callable[[], str]
) -> bytes:
    """The payload of a value that is sent under a name. If either holds a secret, the attempt fails, even if its code
    catches the error."""
    try:
        refuse_secrets(codec, name)
        return encode_named(codec, value, what)
    except SecretExposed as error:
        attempt.exposed = error
        raise
