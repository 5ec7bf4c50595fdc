"""JSON of answers: integers that JavaScript can't hold exactly are strings of digits."""

import re
from typing import Any, Final

import msgspec

EXACT: Final = 2**53
"""Every integer up to this one is exact in JavaScript."""

_LONG_NUMBER: Final = re.compile(rb"\d{16}")
_encode = msgspec.json.Encoder().encode


def json_bytes(value: object) -> bytes:
    """The JSON of a value."""
    encoded = _encode(value)
    if _LONG_NUMBER.search(encoded) is None:
        return encoded
    return _encode(_exact(msgspec.to_builtins(value)))


def _exact(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _exact(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_exact(each) for each in value]
    if type(value) is int and not -EXACT <= value <= EXACT:
        return str(value)
    return value
