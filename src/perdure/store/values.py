"""What both databases can hold, checked before either is asked.

Postgres stores no NUL character and neither stores a lone surrogate; integers have 64 bits. A value
that one of them would refuse is refused for both, so that a program that runs on one runs on the other.
"""

from collections.abc import Iterable
from typing import Any, Final

from perdure.core.errors import InputError, InvalidId

MAX_STEP_BYTES: Final = 1024
"""A step is part of keys, and Postgres keeps no key over 2,704 bytes. The deepest path has 708."""

_BITS_64: Final = 64
_PLAIN: Final = "remove it: a store keeps text that every program can read"


def require_text(what: str, text: str, limit_bytes: int | None = None) -> None:
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


def require_integer(what: str, number: int, bits: int = _BITS_64) -> None:
    """Refuse an integer that does not fit its column."""
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise InputError(
            f"{what} {number} does not fit {bits} bits", "times are milliseconds since 1970"
        )


def require_texts(values: Iterable[Any]) -> None:
    """Refuse text, among the arguments of a user's statement, that one of the databases could not take."""
    for value in values:
        if isinstance(value, str):
            require_text("argument", value)
        elif isinstance(value, list | tuple):
            require_texts(value)


def require_storable(values: Iterable[Any]) -> None:
    """Refuse the arguments of a statement of ours that one of the databases could not take."""
    for value in values:
        if isinstance(value, str):
            require_text("argument", value)
        elif isinstance(value, int):
            require_integer("argument", value)
        elif isinstance(value, list | tuple):
            require_storable(value)
