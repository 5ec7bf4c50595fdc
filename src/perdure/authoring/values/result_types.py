"""Types that a result can't have if its annotation is right.

The type alone reveals most wrong results, which is cheap enough to check for every result before it is stored. Other
wrong results are found when they are decoded.
"""

from types import NoneType
from typing import Any, Final

from msgspec import inspect

from perdure.core.errors import NotDecodable

_ARRAY: Final[frozenset[type]] = frozenset((list, tuple, set, frozenset))
_OBJECT: Final[frozenset[type]] = frozenset((dict,))
_PLAIN: Final[frozenset[type]] = frozenset((bool, int, float, str, NoneType, *_ARRAY, *_OBJECT))
"""Types whose JSON form is known. A value of any other type may be encoded as anything."""

_READ_AS: Final[dict[type[inspect.Type], frozenset[type]]] = {
    inspect.BoolType: frozenset((bool,)),
    inspect.IntType: frozenset((int,)),
    inspect.FloatType: frozenset((float, int)),
    inspect.StrType: frozenset((str,)),
    inspect.NoneType: frozenset((NoneType,)),
    inspect.ListType: _ARRAY,
    inspect.SetType: _ARRAY,
    inspect.FrozenSetType: _ARRAY,
    inspect.VarTupleType: _ARRAY,
    inspect.TupleType: _ARRAY,
    inspect.DictType: _OBJECT,
}
"""The plain types that decode as each annotation. Any plain type may decode as another annotation: a class may have
upcasters."""


def impossible_types(wanted: Any) -> frozenset[type]:
    """The plain types whose stored values can't be decoded as `wanted`."""
    return _PLAIN - _readable(inspect.type_info(wanted))


def unreadable_result(what: str, error: NotDecodable) -> NotDecodable:
    """The decoding error of a stored result, naming `what` returned it."""
    return NotDecodable(
        f"the result of {what} can't be read as its annotation says: {error.what}", error.remedy
    )


def _readable(kind: inspect.Type) -> frozenset[type]:
    if isinstance(kind, inspect.UnionType):
        return frozenset().union(*map(_readable, kind.types))
    if isinstance(kind, inspect.Metadata):
        return _readable(kind.type)
    return _READ_AS.get(type(kind), _PLAIN)
