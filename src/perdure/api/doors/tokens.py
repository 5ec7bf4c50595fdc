"""Tokens: `perdure_` and an id, and a secret of which the store has only the hash."""

from collections.abc import Callable
from hashlib import sha256
from hmac import compare_digest
from typing import Final

import msgspec

from perdure.api.doors.caller import Caller
from perdure.core.errors import InputError
from perdure.core.limits import MAX_NAME_LENGTH
from perdure.core.runs.authority import ROLES
from perdure.core.texts import require_storable_text
from perdure.store.access_table import TokenRow

PREFIX: Final = "perdure"

_ID_BYTES: Final = 8
_SECRET_BYTES: Final = 32

LONGEST_S: Final = 10 * 366 * 86_400.0
"""The longest time that a token may be valid."""


class NewToken(msgspec.Struct, frozen=True):
    """A token that was made just now: its row, and the text that its bearer sends. The text is shown once."""

    row: TokenRow
    text: str


class TokenWish(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a token is for. `expires_in` is in seconds; without it the token never expires."""

    label: str
    role: str
    scope: str | None = None
    expires_in: float | None = None


def new_token(wish: TokenWish, now_ms: int, entropy: Callable[[int], bytes]) -> NewToken:
    """A new token. Raises `InputError` for a role that does not exist, or a label or scope that can't be stored."""
    if wish.role not in ROLES:
        raise InputError(f"there is no role {wish.role!r:.100}", f"use {', '.join(ROLES)}")
    for what, text in (("label", wish.label), ("scope", wish.scope or "")):
        require_storable_text(what, text)
        if len(text) > MAX_NAME_LENGTH:
            raise InputError(f"the {what} has {len(text)} characters", "use at most 255")
    if not wish.label.strip():
        raise InputError("the label is empty", "say what the token is for")
    expires_at_ms = None
    if wish.expires_in is not None:
        if not 0 < wish.expires_in <= LONGEST_S:
            raise InputError(
                f"the token would expire in {wish.expires_in:g} s", "pass seconds, more than 0"
            )
        expires_at_ms = now_ms + int(wish.expires_in * 1000)
    name, secret = entropy(_ID_BYTES).hex(), entropy(_SECRET_BYTES).hex()
    row = TokenRow(
        id=name,
        hash=hash_of(secret),
        label=wish.label,
        role=wish.role,
        scope=wish.scope,
        created_at_ms=now_ms,
        expires_at_ms=expires_at_ms,
    )
    return NewToken(row, f"{PREFIX}_{name}_{secret}")


def hash_of(secret: str) -> bytes:
    """A secret has 256 random bits, so that one round of SHA-256 is as good as many."""
    return sha256(secret.encode()).digest()


def parts_of(text: str) -> tuple[str, str] | None:
    """Id and secret of a token; `None` if it can't be one."""
    prefix, _, rest = text.partition("_")
    name, _, secret = rest.partition("_")
    is_whole = len(name) == 2 * _ID_BYTES and len(secret) == 2 * _SECRET_BYTES
    return (name, secret) if prefix == PREFIX and is_whole and rest.isascii() else None


def refusal_of(row: TokenRow | None, secret: str, now_ms: int) -> str | None:
    """Why a token does not let its bearer in; `None` if it does. Unknown ids and wrong secrets look alike."""
    known = hash_of("") if row is None else row.hash
    is_right = compare_digest(known, hash_of(secret))
    if row is None or not is_right:
        return "the token is not known"
    if row.revoked_at_ms is not None:
        return "the token was revoked"
    if row.expires_at_ms is not None and row.expires_at_ms <= now_ms:
        return "the token has expired"
    return None


def bearer_of(row: TokenRow) -> Caller:
    """Who sends a request with this token."""
    return Caller(
        name=row.label,
        role=row.role,
        scope=row.scope,
        token_id=row.id,
        expires_at_ms=row.expires_at_ms,
    )
