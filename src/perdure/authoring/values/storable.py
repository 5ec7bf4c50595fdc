"""Checks that values of an annotation can be stored as JSON and decoded again."""

from typing import Any

import msgspec

from perdure.core.errors import InputError
from perdure.core.models import is_model, why_not_storable

REMEDY = (
    "use JSON-like types, dataclasses, msgspec structs, Pydantic models, enums, dates, bytes, UUIDs or "
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


def _custom_type(root: object) -> str | None:
    """The first class in the annotation without a JSON form, for messages; None if all have one."""
    found: list[object] = [root]
    seen = set()  # classes may be recursive
    while found:
        item = found.pop()
        if isinstance(item, msgspec.inspect.CustomType):
            reason = _why_not(item.cls)
            if reason is not None:
                return reason
        elif isinstance(item, tuple):
            found.extend(item)
        elif isinstance(item, msgspec.inspect.Field):
            found.append(item.type)
        elif isinstance(item, msgspec.inspect.Type) and id(item) not in seen:
            seen.add(id(item))
            found.extend(getattr(item, name) for name in item.__struct_fields__)
    return None


def _why_not(cls: type) -> str | None:
    """Why values of a class unknown to msgspec can't be stored; None if they can."""
    if is_model(cls):
        return why_not_storable(cls)
    return None if cls is object else f"{cls.__qualname__!r} has no JSON form"
