"""Plain data, the values of expressions: their size, and the cost of reading them."""

from collections.abc import Collection, Iterator
from dataclasses import fields, is_dataclass
from functools import lru_cache
from itertools import islice
from types import GeneratorType
from typing import Any

from perdure.core.errors import EvaluationError
from perdure.core.expressions.budget import Evaluation
from perdure.core.limits import MAX_EXPRESSION_ITEMS

NUMBERS = (int, float)
SEQUENCES = (list, tuple)
CONTAINERS = (list, tuple, dict)
SIZED = (str, list, tuple, dict)
PLAIN = (type(None), int, float, str, list, tuple, dict)

_SMALL = {bool, float, type(None)}
_LARGE = 2**60


def require_plain(*values: object) -> None:
    for value in values:
        if not isinstance(value, PLAIN):
            raise EvaluationError(
                f"an expression can't compute with a {type(value).__qualname__}",
                "use its fields, or make it text, numbers, lists and dicts in a task",
            )


def public_fields(value: object) -> frozenset[str]:
    """The declared public fields of a dataclass or a msgspec struct; none for other values."""
    kind: Any = type(value)
    return _fields_of_kind(kind)


@lru_cache(maxsize=1024)
def _fields_of_kind(kind: Any) -> frozenset[str]:
    if is_dataclass(kind):
        names = [field.name for field in fields(kind)]
    else:
        names = list(getattr(kind, "__struct_fields__", ()))
    return frozenset(name for name in names if not name.startswith("_"))


def measure(value: object, cap: int, *, strict: bool = False) -> int:
    """A lower bound for the characters of `value` as JSON or as Python text, so that no valid value is refused.

    Stops beyond `cap`: an item that occurs many times counts each time, and a value may contain itself. With `strict`,
    values that are not plain data are refused.
    """
    size = 0
    waiting: list[Any] = [value]
    while waiting and size <= cap:
        item = waiting.pop()
        kind = type(item)
        if kind is str:
            size += len(item) + 2
        elif isinstance(item, SEQUENCES):
            size += len(item) + 1
            if size <= cap:
                size += _measure_items(item, waiting)
        elif isinstance(item, dict):
            size += 2 * len(item) + 1
            if size <= cap:
                size += _measure_items(item.keys(), waiting)
                size += _measure_items(item.values(), waiting)
        elif kind is int:
            size += 1 + (item.bit_length() >> 2)
        else:
            size += 1
            if strict:
                require_plain(item)
            waiting.extend(getattr(item, name) for name in public_fields(item))
    return size


def _measure_items(items: Collection[Any], waiting: list[Any]) -> int:
    """The size of the items if all have one simple type, which is fast; otherwise they are added to `waiting`."""
    if len(items) > 16:
        kinds = set(map(type, items))
        if kinds == {str}:
            return sum(map(len, items)) + 2 * len(items)
        if kinds == {int}:
            return (sum(map(int.bit_length, items)) >> 2) + len(items)
        if kinds <= _SMALL:
            return len(items)
    waiting.extend(items)
    return 0


def price(work: Evaluation, value: object) -> int:
    """Operations for reading all of `value`, as a comparison does."""
    if isinstance(value, str):
        return len(value) >> 6
    if value is None or isinstance(value, NUMBERS):
        return 0
    return measure(value, work.left * 2 + 2) >> 1


def pay_for_key(work: Evaluation, key: object, count: int) -> None:
    """Charge for finding a key among `count`: tuples are hashed each time, and large integers can be made to
    collide."""
    if isinstance(key, tuple):
        work.spend(price(work, key))
    elif isinstance(key, int) and not -_LARGE < key < _LARGE:
        work.spend(count)


def elements(value: Any) -> Iterator[Any]:
    """The items of a value in a loop. Sets are refused: their order differs between processes."""
    if not isinstance(value, (*SIZED, GeneratorType)):
        require_plain(value)
    return iter(value)


def collected(work: Evaluation, items: Any) -> list[Any]:
    """The items as a new list; raises if there are too many."""
    if isinstance(items, SIZED):
        work.require_items(len(items))
        return list(items)
    return collect_limited(work, elements(items))


def collect_limited(work: Evaluation, items: Iterator[Any]) -> list[Any]:
    """The remaining items as a list; raises if there are too many."""
    found = list(islice(items, MAX_EXPRESSION_ITEMS + 1))
    work.require_items(len(found))
    return found
