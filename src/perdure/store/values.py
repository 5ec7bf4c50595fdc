"""What both databases can hold, checked before either is asked.

Integers have 64 bits, and texts are as `core/texts.py` says. A value that one of them would refuse is refused for
both, so that a program that runs on one runs on the other.
"""

from collections.abc import Iterable
from typing import Any, Final

from perdure.core.errors import InputError
from perdure.core.texts import require_text

MAX_STEP_BYTES: Final = 1024
"""A step is part of keys, and Postgres keeps no key over 2,704 bytes. The deepest path has 708."""

_BITS_64: Final = 64


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
