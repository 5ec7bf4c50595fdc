"""Values of a subclass where an annotation names the base: what the subclass adds would not come back from a store."""

from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec

from perdure.core.errors import NotEncodable

Classes = tuple[type, ...]


def classes_in(hint: Any) -> Classes:
    """The classes with fields that are meant by `hint`: itself, or members of a union. Not those inside of others."""
    origin = get_origin(hint)
    if origin is Annotated:
        return classes_in(get_args(hint)[0])
    if origin in (Union, UnionType):
        return tuple(found for each in get_args(hint) for found in classes_in(each))
    return (hint,) if isinstance(hint, type) and _has_fields(hint) else ()


def require_whole(what: str, value: object, classes: Classes) -> None:
    """Refuse `value` if it has fields that none of the classes has, though it is an instance of one."""
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
    return is_dataclass(cls) or issubclass(cls, msgspec.Struct) or hasattr(cls, "__attrs_attrs__")


def _lost_fields(wanted: type, given: type) -> tuple[str, ...]:
    known = _fields_of(wanted)
    return tuple(name for name in _fields_of(given) if name not in known)


def _fields_of(cls: type) -> list[str]:
    """As they are stored, without those that the class computes. Annotations may be unresolvable."""
    if issubclass(cls, msgspec.Struct):
        return list(cls.__struct_encode_fields__)
    if is_dataclass(cls):
        return [field.name for field in fields(cls) if field.init]
    return [each.name for each in getattr(cls, "__attrs_attrs__", ()) if each.init]
