"""The methods that an expression may call, by the type of their object."""

from collections.abc import Callable
from typing import Any

from perdure.core.expressions.budget import Evaluation
from perdure.core.expressions.operators import pay_for_search
from perdure.core.expressions.plain import collected, pay_for_key, price, require_plain
from perdure.core.limits import MAX_EXPRESSION_ITEMS

Method = Callable[..., Any]


def _plain(of: Callable[..., Any]) -> Method:
    """A method of text that reads it once and makes at most a few times as much text."""

    def method(work: Evaluation, text: str, *given: Any) -> Any:
        work.spend(1 + (len(text) >> 4) + sum(price(work, argument) for argument in given))
        made = of(text, *given)
        if isinstance(made, str):
            work.require_text(len(made))
        return made

    return method


def _stripping(of: Callable[..., str]) -> Method:
    def strip(work: Evaluation, text: str, characters: Any = None) -> str:
        if isinstance(characters, str):
            work.spend(len(text) * len(characters) >> 8)
        work.spend(1 + (len(text) >> 4))
        return of(text, characters)

    return strip


def _join(work: Evaluation, between: str, parts: Any) -> str:
    found = collected(work, parts)
    if all(isinstance(part, str) for part in found):
        work.require_text(sum(map(len, found)) + len(between) * max(0, len(found) - 1))
    return between.join(found)


def _replace(work: Evaluation, text: str, old: Any, new: Any, count: int = -1) -> str:
    if isinstance(old, str) and isinstance(new, str):
        work.spend(len(text) >> 4)
        times = text.count(old)
        if 0 <= count < times:
            times = count
        work.require_text(len(text) + times * (len(new) - len(old)))
    return text.replace(old, new, count)


def _zfill(work: Evaluation, text: str, width: Any) -> str:
    if isinstance(width, int):
        work.require_text(max(len(text), width))
    return text.zfill(width)


def _splitting(of: Callable[..., list[str]]) -> Method:
    def split(work: Evaluation, text: str, sep: Any = None, maxsplit: int = -1) -> list[str]:
        work.spend(len(text) >> 4)
        most = maxsplit if 0 <= maxsplit < MAX_EXPRESSION_ITEMS else MAX_EXPRESSION_ITEMS
        parts = of(text, sep, most)
        work.require_items(len(parts))
        return parts

    return split


def _splitlines(work: Evaluation, text: str, keepends: bool = False) -> list[str]:
    work.spend(len(text) >> 2)
    lines = text.splitlines(keepends)
    work.require_items(len(lines))
    return lines


def _index(work: Evaluation, items: Any, item: Any, *bounds: Any) -> int:
    pay_for_search(work, item, len(items))
    place: int = items.index(item, *bounds)
    return place


def _count(work: Evaluation, items: Any, item: Any) -> int:
    pay_for_search(work, item, len(items))
    times: int = items.count(item)
    return times


def _get(work: Evaluation, mapping: dict[Any, Any], key: Any, default: Any = None) -> Any:
    pay_for_key(work, key, len(mapping))
    return mapping.get(key, default)


def _keys(work: Evaluation, mapping: dict[Any, Any]) -> list[Any]:
    return collected(work, mapping)


def _values(work: Evaluation, mapping: dict[Any, Any]) -> list[Any]:
    work.require_items(len(mapping))
    return list(mapping.values())


def _items(work: Evaluation, mapping: dict[Any, Any]) -> list[tuple[Any, Any]]:
    work.require_items(len(mapping))
    return list(mapping.items())


_OF_TEXT: dict[str, Method] = {
    **{
        name: _plain(getattr(str, name))
        for name in (
            *("capitalize", "casefold", "lower", "title", "upper"),
            *("removeprefix", "removesuffix"),
            *("count", "endswith", "find", "index", "startswith"),
            *("isalnum", "isalpha", "isdigit", "islower", "isspace", "isupper"),
        )
    },
    "join": _join,
    "replace": _replace,
    "lstrip": _stripping(str.lstrip),
    "rsplit": _splitting(str.rsplit),
    "rstrip": _stripping(str.rstrip),
    "split": _splitting(str.split),
    "splitlines": _splitlines,
    "strip": _stripping(str.strip),
    "zfill": _zfill,
}

_OF_SEQUENCES: dict[str, Method] = {"count": _count, "index": _index}

METHODS: dict[type, dict[str, Method]] = {
    str: _OF_TEXT,
    list: _OF_SEQUENCES,
    tuple: _OF_SEQUENCES,
    dict: {"get": _get, "items": _items, "keys": _keys, "values": _values},
}

METHOD_NAMES: frozenset[str] = frozenset(name for methods in METHODS.values() for name in methods)

METHOD_KEYWORDS: dict[str, frozenset[str]] = {
    "rsplit": frozenset({"sep", "maxsplit"}),
    "split": frozenset({"sep", "maxsplit"}),
    "splitlines": frozenset({"keepends"}),
}


def method_of(value: object, name: str) -> Method:
    """The method of that name; raises `AttributeError` if values of this type have none."""
    for kind in (type(value), *METHODS):
        if kind in METHODS and isinstance(value, kind) and name in METHODS[kind]:
            return METHODS[kind][name]
    require_plain(value)
    raise AttributeError(f"a value of type {type(value).__name__!r} has no method {name!r}")
