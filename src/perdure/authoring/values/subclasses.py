"""Refuses values of a subclass where an annotation names the base class: decoding would drop the added fields."""

from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec

from perdure.core.errors import NotEncodable
from perdure.core.models import is_model

Classes = tuple[type, ...]


def classes_in(hint: Any) -> Classes:
    """The classes with fields that `hint` names: itself, or members of a union. Nested classes are not included."""
    origin = get_origin(hint)
    if origin is Annotated:
        return classes_in(get_args(hint)[0])
    if origin in (Union, UnionType):
        return tuple(found for each in get_args(hint) for found in classes_in(each))
    return (hint,) if isinstance(hint, type) and _has_fields(hint) else ()


def require_lossless(what: str, value: object, classes: Classes) -> None:
    """Refuse an instance of one of the classes if its own class has fields that none of them has."""
    given = type(value)
    if given in classes:
        return
    bases = [wanted for wanted in classes if isinstance(value, wanted)]
    lost = min((_lost_fields(wanted, given) for wanted in bases), key=len, default=())
    if lost:
        named = " or ".join(base.__qualname__ for base in bases)
        raise NotEncodable(
            f"{what} is a {given.__qualname__}, and annotated as {named}: "
            f"it would come back without {', '.join(map(repr, lost))}",
            f"annotate it as {given.__qualname__}, or as a union of tagged msgspec structs",
        )


def _has_fields(cls: type) -> bool:
    if is_dataclass(cls) or issubclass(cls, msgspec.Struct) or is_model(cls):
        return True
    return hasattr(cls, "__attrs_attrs__")


def _lost_fields(wanted: type, given: type) -> tuple[str, ...]:
    known = _fields_of(wanted)
    return tuple(name for name in _fields_of(given) if name not in known)


def _fields_of(cls: type) -> list[str]:
    """The stored fields, without computed ones. Does not resolve annotations."""
    if issubclass(cls, msgspec.Struct):
        return list(cls.__struct_encode_fields__)
    if is_model(cls):
        return list(cls.model_fields)  # type: ignore[attr-defined]
    if is_dataclass(cls):
        return [field.name for field in fields(cls) if field.init]
    return [each.name for each in getattr(cls, "__attrs_attrs__", ()) if each.init]
