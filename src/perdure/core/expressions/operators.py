"""The operators, each with its bound: a result that would be too large is refused before it is made."""

import ast
import operator
from collections.abc import Callable
from typing import Any

from perdure.core.errors import EvaluationError
from perdure.core.expressions.budget import Evaluation
from perdure.core.expressions.plain import (
    NUMBERS,
    SEQUENCES,
    SIZED,
    pay_for_key,
    price,
    require_plain,
)
from perdure.core.limits import MAX_EXPRESSION_BITS

Operator = Callable[[Evaluation, Any, Any], Any]


def add(work: Evaluation, a: Any, b: Any) -> Any:
    if isinstance(a, NUMBERS) and isinstance(b, NUMBERS):
        return work.whole(a + b)
    if isinstance(a, str) and isinstance(b, str):
        work.require_text(len(a) + len(b))
    elif isinstance(a, SEQUENCES) and isinstance(b, SEQUENCES):
        work.require_items(len(a) + len(b))
    require_plain(a, b)
    return a + b


def subtract(work: Evaluation, a: Any, b: Any) -> Any:
    require_plain(a, b)
    return work.whole(a - b)


def multiply(work: Evaluation, a: Any, b: Any) -> Any:
    if isinstance(a, NUMBERS) and isinstance(b, NUMBERS):
        return work.whole(a * b)
    require_plain(a, b)
    if isinstance(a, int):
        _require_repeated(work, b, a)
    elif isinstance(b, int):
        _require_repeated(work, a, b)
    return a * b


def _require_repeated(work: Evaluation, value: Any, times: int) -> None:
    if isinstance(value, str):
        work.require_text(len(value) * max(0, times))
    elif isinstance(value, SEQUENCES):
        work.require_items(len(value) * max(0, times))


def divide(work: Evaluation, a: Any, b: Any) -> Any:
    require_plain(a, b)
    return work.whole(a / b)


def floor_divide(work: Evaluation, a: Any, b: Any) -> Any:
    require_plain(a, b)
    return work.whole(a // b)


def remainder(work: Evaluation, a: Any, b: Any) -> Any:
    if isinstance(a, str):
        raise EvaluationError("`%` does not format text here", "write an f-string, or join parts")
    require_plain(a, b)
    return work.whole(a % b)


def power(work: Evaluation, a: Any, b: Any) -> Any:
    require_plain(a, b)
    if isinstance(a, int) and isinstance(b, int):
        least = (a.bit_length() - 1) * b
        if least > MAX_EXPRESSION_BITS:
            work.require_bits(least)
    value = a**b
    if isinstance(value, complex):
        raise EvaluationError(
            f"{a!r} ** {b!r} is not a real number", "raise numbers that are not negative"
        )
    return work.whole(value)


def equal(work: Evaluation, a: Any, b: Any) -> Any:
    if isinstance(a, SIZED):
        _pay_for_comparison(work, a, b)
    return a == b


def unequal(work: Evaluation, a: Any, b: Any) -> Any:
    if isinstance(a, SIZED):
        _pay_for_comparison(work, a, b)
    return a != b


def _ordering(compare: Callable[[Any, Any], Any]) -> Operator:
    def ordered(work: Evaluation, a: Any, b: Any) -> Any:
        if isinstance(a, SIZED) and isinstance(b, SIZED):
            work.spend(price(work, a if len(a) <= len(b) else b))
        return compare(a, b)

    return ordered


def _pay_for_comparison(work: Evaluation, a: Any, b: Any) -> None:
    """Values of different lengths differ; their items are not compared."""
    if isinstance(b, SIZED) and len(a) == len(b):
        work.spend(price(work, a))


def contains(work: Evaluation, item: Any, container: Any) -> bool:
    require_plain(container)
    if isinstance(container, SEQUENCES):
        pay_for_search(work, item, len(container))
    elif isinstance(container, str):
        work.spend(len(container) >> 4)
    elif isinstance(container, dict):
        pay_for_key(work, item, len(container))
    return item in container


def lacks(work: Evaluation, item: Any, container: Any) -> bool:
    return not contains(work, item, container)


def pay_for_search(work: Evaluation, item: Any, count: int) -> None:
    """The cost of comparing `item` with `count` others."""
    once = price(work, item)
    work.spend(once + (count * (1 + once) >> 3))


def same(_work: Evaluation, a: Any, b: Any) -> bool:
    return a is b


def different(_work: Evaluation, a: Any, b: Any) -> bool:
    return a is not b


def negative(work: Evaluation, a: Any) -> Any:
    require_plain(a)
    return work.whole(-a)


def positive(work: Evaluation, a: Any) -> Any:
    require_plain(a)
    return work.whole(+a)


def inverted(_work: Evaluation, a: Any) -> bool:
    return not a


BINARY: dict[type[ast.operator], Operator] = {
    ast.Add: add,
    ast.Sub: subtract,
    ast.Mult: multiply,
    ast.Div: divide,
    ast.FloorDiv: floor_divide,
    ast.Mod: remainder,
    ast.Pow: power,
}

COMPARISONS: dict[type[ast.cmpop], Operator] = {
    ast.Eq: equal,
    ast.NotEq: unequal,
    ast.Lt: _ordering(operator.lt),
    ast.LtE: _ordering(operator.le),
    ast.Gt: _ordering(operator.gt),
    ast.GtE: _ordering(operator.ge),
    ast.In: contains,
    ast.NotIn: lacks,
    ast.Is: same,
    ast.IsNot: different,
}

UNARY: dict[type[ast.unaryop], Callable[[Evaluation, Any], Any]] = {
    ast.USub: negative,
    ast.UAdd: positive,
    ast.Not: inverted,
}
