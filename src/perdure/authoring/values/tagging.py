"""Tags: preserve tuples and bytes in JSON-like values through JSON."""

from base64 import b64decode, b64encode
from collections.abc import Callable
from types import NoneType
from typing import Any, Final

KNOWN: Final = frozenset({NoneType, bool, int, float, str, bytes, list, tuple, dict})

_MARK: Final = "$"
_TUPLE: Final = "$tuple"
_BYTES: Final = "$bytes"
_DICT: Final = "$dict"


def is_same(one: object, other: object) -> bool:
    """Whether two values are equal, with equal types at all levels that JSON or a tag preserves."""
    if type(one) is not type(other) or type(one) not in KNOWN:
        return False
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(is_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return len(one) == len(other) and all(
            type(key) is str and key in other and is_same(item, other[key])
            for key, item in one.items()
        )
    return one == other


def mark_types(value: Any) -> Any:
    """`value` in JSON types only. A dict with keys that look like tags is tagged too."""
    if isinstance(value, tuple):
        return {_TUPLE: [mark_types(item) for item in value]}
    if isinstance(value, list):
        return [mark_types(item) for item in value]
    if isinstance(value, bytes):
        return {_BYTES: b64encode(value).decode()}
    if isinstance(value, dict):
        inside = {key: mark_types(item) for key, item in value.items()}
        return {_DICT: inside} if any(key.startswith(_MARK) for key in inside) else inside
    return value


def read_marked(value: Any) -> Any:
    """The reverse of `mark_types`."""
    if isinstance(value, list):
        return [read_marked(item) for item in value]
    if not isinstance(value, dict):
        return value
    for name, read in _READERS.items():
        if name in value:
            return read(value[name])
    return _untag_items(value)


def _untag_items(items: dict[str, Any]) -> dict[str, Any]:
    return {key: read_marked(item) for key, item in items.items()}


_READERS: Final[dict[str, Callable[[Any], Any]]] = {
    _TUPLE: lambda items: tuple(map(read_marked, items)),
    _BYTES: b64decode,
    _DICT: _untag_items,
}
