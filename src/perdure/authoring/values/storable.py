"""Checks that values of an annotation can be stored as JSON and decoded again."""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from perdure.core.errors import InputError
from perdure.core.models import is_model, why_not_storable
from perdure.core.text_types import is_text_type

REMEDY = (
    "use JSON-like types, dataclasses, msgspec structs, Pydantic models, enums, dates, paths, bytes, UUIDs or "
    "Decimals, or leave the annotation out"
)


class Unresolved(InputError):
    """An annotation refers to a name that is not defined, or not yet."""


def require_storable_annotation(what: str, wanted: Any) -> None:
    """Refuse an annotation without a JSON form. Raises `Unresolved` if a class in it refers to an undefined name."""
    try:
        reason = _custom_type(msgspec.inspect.type_info(wanted))
        if reason is None:
            msgspec.json.Decoder(wanted)  # refuses unions whose members are ambiguous in JSON
    except NameError as error:
        raise Unresolved(
            f"{what} has an annotation that can't be resolved ({error})",
            "define what it names at module level",
        ) from error
    except Exception as error:  # annotations of classes inside are user code
        reason = str(error)
    if reason is not None:
        raise InputError(f"{what} has an annotation that can't be stored ({reason})", REMEDY)


_SETS: Final = (msgspec.inspect.SetType, msgspec.inspect.FrozenSetType)


def _custom_type(root: object) -> str | None:
    """Why values of the annotation can't be stored, for messages; None if they can."""
    for item in _parts(root):
        if isinstance(item, msgspec.inspect.CustomType):
            reason = _why_not(item.cls)
            if reason is not None:
                return reason
        elif isinstance(item, _SETS) and any(
            isinstance(part, _SETS) for part in _parts(item.item_type)
        ):
            # Sets are sorted by `<`, which for sets compares only some of them.
            return "sets in sets have no order: use lists or tuples"
    return None


def _parts(root: object) -> Iterator[object]:
    """The annotation and all types in it."""
    found: list[object] = [root]
    seen = set()  # classes may be recursive
    while found:
        item = found.pop()
        if isinstance(item, tuple):
            found.extend(item)
        elif isinstance(item, msgspec.inspect.Field):
            found.append(item.type)
        elif isinstance(item, msgspec.inspect.Type) and id(item) not in seen:
            seen.add(id(item))
            yield item
            found.extend(getattr(item, name) for name in item.__struct_fields__)


def _why_not(cls: type) -> str | None:
    """Why values of a class unknown to msgspec can't be stored; None if they can."""
    if is_model(cls):
        return why_not_storable(cls)
    if is_text_type(cls):
        return None
    return None if cls is object else f"{cls.__qualname__!r} has no JSON form"
