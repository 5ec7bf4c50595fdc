"""Limits of one evaluation: the operations that it may spend, and the sizes of values that it may make."""

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from perdure.core.errors import ExpressionTooCostly
from perdure.core.limits import (
    MAX_EXPRESSION_BITS,
    MAX_EXPRESSION_ITEMS,
    MAX_EXPRESSION_TEXT,
    MAX_EXPRESSION_WORK,
)

_WORD = 2**63


class Meter:
    """Sums the operations of many evaluations."""

    __slots__ = ("spent",)

    def __init__(self) -> None:
        self.spent = 0


class Evaluation:
    """One evaluation in progress: the values it reads, its loop variables, and the operations left."""

    __slots__ = ("left", "scope", "variables")

    def __init__(self, scope: Mapping[str, Any], variables: int) -> None:
        self.scope = scope
        self.variables: list[Any] = [None] * variables
        self.left = MAX_EXPRESSION_WORK

    def spend(self, operations: int) -> None:
        self.left -= operations
        if self.left < 0:
            too_costly(f"the expression takes more than {MAX_EXPRESSION_WORK:,} operations")

    def require_text(self, length: int) -> None:
        """Charge for a text of that length; raise if it is too long."""
        if length > MAX_EXPRESSION_TEXT:
            too_costly(
                f"the expression makes a text of {_spelled(length)} characters, and"
                f" {MAX_EXPRESSION_TEXT:,} is the most"
            )
        self.spend(length >> 5)

    def require_items(self, count: int) -> None:
        """Charge for a list of that many items; raise if there are too many."""
        if count > MAX_EXPRESSION_ITEMS:
            too_costly(
                f"the expression makes {_spelled(count)} items, and {MAX_EXPRESSION_ITEMS:,} is the most"
            )
        self.spend((count >> 1) + 1)

    def whole(self, number: Any) -> Any:
        """Returns the number; raises if it is an integer that is too large."""
        if not isinstance(number, int) or -_WORD < number < _WORD:
            return number
        bits = number.bit_length()
        self.require_bits(bits)
        return number

    def require_bits(self, bits: int) -> None:
        if bits > MAX_EXPRESSION_BITS:
            too_costly(
                f"the expression makes an integer of {_spelled(bits)} bits, and"
                f" {MAX_EXPRESSION_BITS:,} is the most"
            )
        self.spend(bits >> 4)


Code = Callable[[Evaluation], Any]
"""A compiled part of an expression."""


def too_costly(what: str) -> NoReturn:
    raise ExpressionTooCostly(what, "compute it in a task")


def _spelled(count: int) -> str:
    """The count as text, unless that itself would be too long."""
    return f"{count:,}" if count < 10**15 else "more than 10**15"
