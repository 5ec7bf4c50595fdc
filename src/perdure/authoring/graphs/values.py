"""Converts Python values to graph expressions."""

import math
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, NamedTuple

from perdure.core.errors import ExpressionProblem
from perdure.core.limits import (
    MAX_EXPRESSION_BITS,
    MAX_EXPRESSION_DEPTH,
    MAX_EXPRESSION_LENGTH,
    MAX_EXPRESSION_NODES,
)


class Computed(NamedTuple):
    """An expression that computes the name of a task, program or topic when the run reaches the node."""

    text: str


def spelled(value: Any) -> str:
    """The expression for plain data. Raises `ExpressionProblem` if the value has none.

    The limits on parts and depth bound the length, even for values that repeat or contain themselves.
    """
    return "".join(_Spelling().parts(value, 1))


def seconds_of(duration: timedelta) -> float:
    """Seconds, as an int if the duration is a whole number of them."""
    seconds = duration.total_seconds()
    return int(seconds) if seconds.is_integer() else seconds


class _Spelling:
    """Counts visited values; a value that occurs several times counts each time."""

    def __init__(self) -> None:
        self._count = 0

    def parts(self, value: Any, depth: int) -> Iterator[str]:
        self._count += 1
        if self._count > MAX_EXPRESSION_NODES:
            what = f"the value has more than {MAX_EXPRESSION_NODES:,} parts"
            raise _problem(what, "compute it in a task")
        if depth > MAX_EXPRESSION_DEPTH:
            raise _problem("the value nests too deep", "make it in several steps, or in a task")
        if isinstance(value, list):
            yield from self._joined("[", value, "]", depth)
        elif isinstance(value, tuple):
            yield from self._joined("(", value, ",)" if len(value) == 1 else ")", depth)
        elif isinstance(value, dict):
            yield "{"
            for number, (key, item) in enumerate(value.items()):
                yield ", " if number else ""
                yield from self.parts(key, depth + 1)
                yield ": "
                yield from self.parts(item, depth + 1)
            yield "}"
        else:
            yield _scalar(value)

    def _joined(
        self, opening: str, items: list[Any] | tuple[Any, ...], closing: str, depth: int
    ) -> Iterator[str]:
        yield opening
        for number, item in enumerate(items):
            yield ", " if number else ""
            yield from self.parts(item, depth + 1)
        yield closing


def _scalar(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return repr(value)
    if isinstance(value, str):
        if len(value) > MAX_EXPRESSION_LENGTH:
            what = f"the text has {len(value):,} characters"
            raise _problem(what, f"use at most {MAX_EXPRESSION_LENGTH:,}, or make it in a task")
        return str.__repr__(value)
    if isinstance(value, int):
        if value.bit_length() > MAX_EXPRESSION_BITS:
            what = f"the integer has {value.bit_length():,} bits"
            raise _problem(what, f"use at most {MAX_EXPRESSION_BITS:,}")
        return int.__repr__(value)
    if isinstance(value, float) and math.isfinite(value):
        return float.__repr__(value)
    raise _problem(*_formless(value))


def _formless(value: Any) -> tuple[str, str]:
    if isinstance(value, float):
        number = float.__repr__(value)
        what = f"the number {number} has no form in an expression"
        return what, f"use a finite number, or write \"float('{number}')\""
    what = f"a value of type {type(value).__qualname__} has no form in an expression"
    if isinstance(value, timedelta):
        return what, "pass its total_seconds()"
    return what, "pass text, numbers, True, False, None, or lists and dicts of them"


def _problem(what: str, remedy: str) -> ExpressionProblem:
    return ExpressionProblem(what, remedy, 1, 0)
