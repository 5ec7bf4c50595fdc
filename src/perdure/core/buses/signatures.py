"""Signatures of webhooks, by the specification of Standard Webhooks: HMAC-SHA256, scheme v1."""

import binascii
import hmac
from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Final

from perdure.core.errors import InputError

PREFIX: Final = "whsec_"
FEWEST_BYTES: Final = 24
MOST_BYTES: Final = 64


def secret_bytes(secret: object) -> bytes:
    """The key of a secret, which is `whsec_` and 24 to 64 bytes in base64."""
    text = secret.removeprefix(PREFIX) if isinstance(secret, str) else ""
    try:
        key = b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not FEWEST_BYTES <= len(key) <= MOST_BYTES:
        raise InputError(
            "a secret of a webhook is not 24 to 64 bytes in base64",
            "make one: 'whsec_' + base64.b64encode(secrets.token_bytes(32)).decode()",
        )
    return key


def signature_headers(
    keys: Sequence[bytes], message_id: str, at_s: int, body: bytes
) -> dict[str, str]:
    """The headers that sign a message, with one signature for each key: receivers accept any of them."""
    signed = b"%b.%d.%b" % (message_id.encode(), at_s, body)
    digests = (hmac.digest(key, signed, "sha256") for key in keys)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(at_s),
        "webhook-signature": " ".join(f"v1,{b64encode(digest).decode()}" for digest in digests),
    }
