"""Replaces the values of an object's fields, for encoders that encode each part by itself."""

from collections.abc import Callable
from copy import copy
from dataclasses import fields, is_dataclass
from typing import Any

import msgspec


def with_parts(value: object, replaced: Callable[[object], Any]) -> Any:
    """A copy of a dataclass instance, msgspec struct or attrs instance with other field values.

    Raises `TypeError` for a value of another type.
    """
    names = _field_names(value)
    other = copy(value)
    put = msgspec.structs.force_setattr if isinstance(value, msgspec.Struct) else object.__setattr__
    for name in names:
        put(other, name, replaced(getattr(value, name)))  # type: ignore[arg-type] # as checked
    return other


def _field_names(value: object) -> list[str]:
    if isinstance(value, msgspec.Struct):
        return list(value.__struct_fields__)
    if is_dataclass(value) and not isinstance(value, type):
        return [each.name for each in fields(value)]
    attributes = getattr(type(value), "__attrs_attrs__", None)
    if attributes is None:
        raise TypeError(f"a {type(value).__qualname__} has no JSON form")
    return [each.name for each in attributes]
