"""Encryption of payloads at rest: AES-SIV (RFC 5297), with keys that may be replaced.

Encryption is deterministic, because a replay compares stored bytes, and so do messages that are sent again. So equal
values have equal ciphertexts under one key: a reader of the store learns which values are equal, and about how long
they are.
"""

import re
from collections.abc import Sequence
from hashlib import sha256
from hmac import digest
from typing import TYPE_CHECKING, Final, TypeVar

from perdure.core.codec import Codec, JsonCodec
from perdure.core.errors import InputError, NotDecodable
from perdure.core.limits import MAX_PAYLOAD_BYTES

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESSIV

T = TypeVar("T")

MAGIC: Final = b"\xffsiv1"
"""Begins an encrypted payload. No JSON text begins with this byte."""

KEY_ID_BYTES: Final = 8
SIV_BYTES: Final = 16
OVERHEAD: Final = len(MAGIC) + KEY_ID_BYTES + SIV_BYTES
"""How many bytes longer a payload is when it is encrypted."""

KEY_LENGTHS: Final = (32, 48, 64)

CONSTANTS: Final = (b"null", b"{}")
"""What an empty payload is read as. These two come from no store, and say nothing."""

_QUOTED: Final = re.compile(r"'[^']*'|\"[^\"]*\"")


class EncryptedCodec:
    """Encrypts what another codec encodes: `Engine(url, codec=EncryptedCodec([new_key, old_key]))`.

    Each key has 32, 48 or 64 random bytes. The first key encrypts, and all keys decrypt. To replace a key, first add
    the new one at the end everywhere, then move it to the front; remove the old one when nothing is encrypted with it.

    With `accept_plain=True` payloads that were stored before encryption was turned on can be read too. Without it they
    are refused, because a writer of the store could forge them.
    """

    def __init__(
        self, keys: Sequence[bytes], inner: Codec | None = None, *, accept_plain: bool = False
    ) -> None:
        given: object = keys
        if not isinstance(given, list | tuple) or not given:
            raise InputError(
                "EncryptedCodec was given no list of keys", "pass a list of at least one key"
            )
        ciphers = [(_key_id(key), _cipher(key)) for key in map(_require_key, given)]
        self._inner: Codec = inner or JsonCodec()
        self._ciphers = dict(reversed(ciphers))
        self._header = MAGIC + ciphers[0][0]
        self._first = ciphers[0][1]
        self._accepts_plain = accept_plain

    def encode(self, value: object, *, limit: int = MAX_PAYLOAD_BYTES) -> bytes:
        payload = self._inner.encode(value, limit=limit - OVERHEAD)
        return self._header + self._first.encrypt(payload, [self._header])

    def decode(self, payload: bytes, wanted: type[T]) -> T:
        try:
            return self._inner.decode(self.plain(payload), wanted)
        except NotDecodable as error:
            # The text may quote a part of the value, and is stored and logged as it is.
            raise NotDecodable(_QUOTED.sub("'...'", error.what), error.remedy) from None

    def plain(self, payload: bytes) -> bytes:
        """The payload without encryption. Two payloads hold the same value if these bytes are the same."""
        if not payload.startswith(MAGIC):
            if self._accepts_plain or payload in CONSTANTS:
                return payload
            raise NotDecodable(
                "a payload is not encrypted",
                "if it was stored before encryption was turned on, pass accept_plain=True to EncryptedCodec",
            )
        header = payload[: len(MAGIC) + KEY_ID_BYTES]
        cipher = self._ciphers.get(header[len(MAGIC) :])
        if cipher is None:
            raise NotDecodable(
                f"a payload is encrypted with key {header[len(MAGIC) :].hex()}, which is not among the given keys",
                "pass that key to EncryptedCodec, behind the one that encrypts; key_id() shows the id of a key",
            )
        return _decrypted(cipher, header, payload)


def key_id(key: bytes) -> str:
    """The id under which payloads name the key that encrypted them, as errors show it. It does not reveal the key."""
    return _key_id(_require_key(key)).hex()


def _require_key(key: object) -> bytes:
    if not isinstance(key, bytes) or len(key) not in KEY_LENGTHS:
        raise InputError(
            "a key of EncryptedCodec is not 32, 48 or 64 bytes long",
            "make one with os.urandom(64), and keep it outside the store",
        )
    return key


def _key_id(key: bytes) -> bytes:
    return digest(key, b"perdure key id", sha256)[:KEY_ID_BYTES]


def _cipher(key: bytes) -> "AESSIV":
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESSIV  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise InputError(
            "EncryptedCodec needs the package 'cryptography'", "pip install 'perdure[encryption]'"
        ) from error
    return AESSIV(key)


def _decrypted(cipher: "AESSIV", header: bytes, payload: bytes) -> bytes:
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - as above

    try:
        return cipher.decrypt(payload[len(header) :], [header])
    except (InvalidTag, ValueError) as error:
        raise NotDecodable(
            "an encrypted payload was altered or is damaged", "restore it from a backup"
        ) from error
