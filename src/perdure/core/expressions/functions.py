"""The functions that an expression may call: pure functions of Python, each with a bound."""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple

from perdure.core.expressions.budget import Evaluation, too_costly
from perdure.core.expressions.operators import add
from perdure.core.expressions.plain import (
    SEQUENCES,
    SIZED,
    collect_limited,
    collected,
    elements,
    pay_for_key,
    price,
    require_plain,
)
from perdure.core.expressions.texts import representation, text_form
from perdure.core.limits import MAX_EXPRESSION_ITEMS

_MOST_DIGITS = 4_300
"""Python's default limit on the digits of an integer; the same here, whatever limit the host has set."""

_MOST_PLACES = 1_000
"""Decimal places that `round` accepts."""


class Function(NamedTuple):
    """`most` positional arguments, or any number if it is `None`; `keywords` is `None` if any are allowed."""

    run: Callable[..., Any]
    least: int
    most: int | None
    keywords: frozenset[str] | None = frozenset()
    consumes: bool = False
    """Whether it consumes its arguments in a loop before it returns, so that they may be generators."""


def _length(_work: Evaluation, value: Any) -> int:
    require_plain(value)
    return len(value)


def _counted(work: Evaluation, items: Any) -> Iterator[Any]:
    """The items for a function that reads them one by one; a generator counts its own iterations."""
    if isinstance(items, SIZED):
        work.spend(1 + (len(items) >> 2))
    return elements(items)


def _any(work: Evaluation, items: Any) -> bool:
    return any(_counted(work, items))


def _all(work: Evaluation, items: Any) -> bool:
    return all(_counted(work, items))


def _sum(work: Evaluation, items: Any, start: Any = 0) -> Any:
    require_plain(start)
    if not isinstance(start, SEQUENCES):
        return work.whole(sum(_summands(work, items), start))
    total: Any = start
    for item in _counted(work, items):
        total = add(work, total, item)
    return total


def _summands(work: Evaluation, items: Any) -> Iterator[Any]:
    if isinstance(items, SEQUENCES) and set(map(type, items)) <= {int, float}:
        return _counted(work, items)
    return map(_plain, _counted(work, items))


def _plain(item: Any) -> Any:
    require_plain(item)
    return item


def _compared(work: Evaluation, items: Any) -> Iterator[Any]:
    for item in elements(items):
        work.spend(1 + price(work, item))
        yield item


def _keyed(
    work: Evaluation, key: Callable[[Any], Any] | None, times: int
) -> Callable[[Any], Any] | None:
    """The key of an item, charged once for each comparison."""
    if key is None:
        return None

    def keyed(item: Any) -> Any:
        value = key(item)
        work.spend(price(work, value) * times)
        return value

    return keyed


def _extreme(of: Callable[..., Any]) -> Callable[..., Any]:
    def extreme(work: Evaluation, *items: Any, **options: Any) -> Any:
        if "key" in options:
            options["key"] = _keyed(work, options["key"], 1)
        found = items[0] if len(items) == 1 else items
        candidates = _counted(work, found) if options.get("key") else _compared(work, found)
        if len(items) > 1 and "default" in options:
            raise TypeError(f"{of.__name__}() has no default with several arguments")
        return of(candidates, **options)

    return extreme


def _sorted(
    work: Evaluation,
    items: Any,
    *,
    key: Callable[[Any], Any] | None = None,
    reverse: bool = False,
) -> list[Any]:
    found = collected(work, items)
    rounds = len(found).bit_length()
    work.spend(len(found) * rounds >> 3)
    if key is None:
        for item in found:
            work.spend(price(work, item) * rounds)
    return sorted(found, key=_keyed(work, key, rounds), reverse=reverse)


def _reversed(work: Evaluation, items: Any) -> list[Any]:
    require_plain(items)
    if isinstance(items, SIZED):
        work.require_items(len(items))
    return list(reversed(items))


def _range(work: Evaluation, *bounds: Any) -> list[int]:
    numbers = range(*bounds)
    if numbers[MAX_EXPRESSION_ITEMS:]:
        too_costly(f"range() makes more than {MAX_EXPRESSION_ITEMS:,} items")
    work.require_items(len(numbers))
    return list(numbers)


def _enumerate(work: Evaluation, items: Any, start: int = 0) -> list[tuple[int, Any]]:
    return collect_limited(work, iter(enumerate(_counted(work, items), start)))


def _zip(work: Evaluation, *columns: Any, strict: bool = False) -> list[tuple[Any, ...]]:
    return collect_limited(
        work, zip(*(_counted(work, column) for column in columns), strict=strict)
    )


def _list(work: Evaluation, items: Any = ()) -> list[Any]:
    return collected(work, items)


def _tuple(work: Evaluation, items: Any = ()) -> tuple[Any, ...]:
    return tuple(collected(work, items))


def _dict(work: Evaluation, items: Any = (), **more: Any) -> dict[Any, Any]:
    made: dict[Any, Any] = {}
    if isinstance(items, dict):
        work.require_items(len(items))
        made.update(items)
    else:
        for pair in islice(_counted(work, items), MAX_EXPRESSION_ITEMS + 1):
            if isinstance(pair, SEQUENCES) and pair:
                pay_for_key(work, pair[0], len(made))
            made.update((pair,))
    made.update(more)
    work.require_items(len(made))
    return made


def _string(work: Evaluation, value: Any = "") -> str:
    return text_form(work, value)


def _int(work: Evaluation, value: Any = 0, base: int | None = None) -> Any:
    require_plain(value)
    _require_digits(value)
    return work.whole(int(value) if base is None else int(value, base))


def _float(_work: Evaluation, value: Any = 0.0) -> float:
    require_plain(value)
    _require_digits(value)
    return float(value)


def _require_digits(text: Any) -> None:
    if isinstance(text, str) and len(text) > _MOST_DIGITS:
        too_costly(f"a text of {len(text):,} characters is read as a number")


def _bool(_work: Evaluation, value: Any = False) -> bool:
    return bool(value)


def _abs(work: Evaluation, number: Any) -> Any:
    require_plain(number)
    return work.whole(abs(number))


def _round(work: Evaluation, number: Any, ndigits: Any = None) -> Any:
    require_plain(number, ndigits)
    if isinstance(ndigits, int) and abs(ndigits) > _MOST_PLACES:
        too_costly(f"a number is rounded to more than {_MOST_PLACES:,} places")
    return work.whole(round(number, ndigits))


def _divmod(work: Evaluation, a: Any, b: Any) -> tuple[Any, Any]:
    require_plain(a, b)
    quotient, rest = divmod(a, b)
    return work.whole(quotient), work.whole(rest)


FUNCTIONS: dict[str, Function] = {
    "abs": Function(_abs, 1, 1),
    "all": Function(_all, 1, 1, consumes=True),
    "any": Function(_any, 1, 1, consumes=True),
    "bool": Function(_bool, 0, 1),
    "dict": Function(_dict, 0, 1, None, consumes=True),
    "divmod": Function(_divmod, 2, 2),
    "enumerate": Function(_enumerate, 1, 2, frozenset({"start"}), consumes=True),
    "float": Function(_float, 0, 1),
    "int": Function(_int, 0, 2, frozenset({"base"})),
    "len": Function(_length, 1, 1),
    "list": Function(_list, 0, 1, consumes=True),
    "max": Function(_extreme(max), 1, None, frozenset({"default", "key"}), consumes=True),
    "min": Function(_extreme(min), 1, None, frozenset({"default", "key"}), consumes=True),
    "range": Function(_range, 1, 3),
    "repr": Function(representation, 1, 1),
    "reversed": Function(_reversed, 1, 1),
    "round": Function(_round, 1, 2, frozenset({"ndigits"})),
    "sorted": Function(_sorted, 1, 1, frozenset({"key", "reverse"}), consumes=True),
    "str": Function(_string, 0, 1),
    "sum": Function(_sum, 1, 2, frozenset({"start"}), consumes=True),
    "tuple": Function(_tuple, 0, 1, consumes=True),
    "zip": Function(_zip, 0, None, frozenset({"strict"}), consumes=True),
}
