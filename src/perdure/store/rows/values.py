"""Checks that a value fits both databases, before a statement is executed.

Integers have 64 bits; texts follow `core/texts.py`. A value that only one database would refuse is refused on both,
so that a program that works on one works on the other.
"""

from collections.abc import Iterable
from typing import Any, Final

from perdure.core.errors import InputError
from perdure.core.texts import require_storable_text

RowValues = tuple[Any, ...]
"""The values of one row, in the order of a statement's columns or parameters."""

_BITS_64: Final = 64


def require_integer(what: str, number: int, bits: int = _BITS_64) -> None:
    """Refuse an integer that does not fit its column."""
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise InputError(
            f"{what} {number} does not fit {bits} bits", "times are milliseconds since 1970"
        )


def require_texts(values: Iterable[Any]) -> None:
    """Refuse text, among the arguments of a user's statement, that one of the databases can't store."""
    for value in values:
        if isinstance(value, str):
            require_storable_text("argument", value)
        elif isinstance(value, list | tuple):
            require_texts(value)


def require_storable_values(values: Iterable[Any]) -> None:
    """Refuse arguments of Perdure's own statements that one of the databases can't store."""
    for value in values:
        if isinstance(value, str):
            require_storable_text("argument", value)
        elif isinstance(value, int):
            require_integer("argument", value)
        elif isinstance(value, list | tuple):
            require_storable_values(value)
