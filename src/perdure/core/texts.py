"""One check for text that becomes a name, a key or an id, before it is stored.

Postgres stores no NUL character, no database stores a lone surrogate, and keys have a limit in bytes. Text that one
database would refuse is refused for all of them.
"""

from typing import Final

from perdure.core.errors import InputError, InvalidId

_PLAIN: Final = "remove it: a store keeps text that every program can read"


def require_storable_text(what: str, text: str, limit_bytes: int | None = None) -> None:
    """Refuse text that a database can't store, or that is longer than a key may be."""
    size = len(text)
    if not text.isascii():
        try:
            size = len(text.encode())
        except UnicodeEncodeError as error:
            raise InputError(
                f"{what} {text[:40]!r} holds a lone surrogate at {error.start}", _PLAIN
            ) from error
    if "\0" in text:
        raise InputError(
            f"{what} {text[:40]!r} holds a NUL character at {text.index(chr(0))}", _PLAIN
        )
    if limit_bytes is not None and size > limit_bytes:
        raise InvalidId(f"{what} of {size} bytes ({text[:20]!r}...)", f"use at most {limit_bytes}")
