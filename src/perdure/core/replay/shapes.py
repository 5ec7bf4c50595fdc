"""Shapes of payloads without their values: types, and a digest for comparison."""

from hashlib import sha256
from typing import Any, Final

import msgspec

MOST_NAMES: Final = 20
DIGEST_CHARACTERS: Final = 8

LONGEST_TEXT: Final = 200
"""Characters of a payload that is revealed."""


def shape(payload: bytes) -> str:
    """Such as `{order: int, items: list of 3} (sha256 1f3d5a7b)`.

    Only the outermost names are shown, which are those of parameters: the keys of a dict inside may be data.
    """
    digest = sha256(payload).hexdigest()[:DIGEST_CHARACTERS]
    try:
        value = msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return f"{len(payload)} bytes (sha256 {digest})"
    return f"{_outermost(value)} (sha256 {digest})"


def revealed(payload: bytes) -> str:
    """The payload itself, as text."""
    text = payload.decode(errors="replace").replace("\0", "\ufffd")  # Postgres stores no NUL
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}..."


def _outermost(value: Any) -> str:
    if not isinstance(value, dict) or len(value) > MOST_NAMES:
        return _kind(value)
    return "{" + ", ".join(f"{name}: {_kind(each)}" for name, each in value.items()) + "}"


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, dict | list):
        return f"{type(value).__name__} of {len(value)}"
    return type(value).__name__
