"""Results that can't be what the annotation says.

Most are told by their type alone, which is cheap enough to be asked of every result, before it is stored. The others
show when they are read.
"""

from types import NoneType
from typing import Any, Final

from msgspec import inspect

from perdure.core.errors import NotDecodable

_ARRAY: Final[frozenset[type]] = frozenset((list, tuple, set, frozenset))
_OBJECT: Final[frozenset[type]] = frozenset((dict,))
_PLAIN: Final[frozenset[type]] = frozenset((bool, int, float, str, NoneType, *_ARRAY, *_OBJECT))
"""Types of which the form in JSON is known. A value of any other type may become anything there."""

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
"""Of which plain types a value is read as each of these. As any other it may be of all: a class may have upcasters."""


def contradictions(wanted: Any) -> frozenset[type]:
    """The plain types of which no value can be read as `wanted` when it has been stored."""
    return _PLAIN - _readable(inspect.type_info(wanted))


def unreadable_result(what: str, error: NotDecodable) -> NotDecodable:
    """The error of a stored result, with the name of what returned it."""
    return NotDecodable(
        f"the result of {what} can't be read as its annotation says: {error.what}", error.remedy
    )


def _readable(kind: inspect.Type) -> frozenset[type]:
    if isinstance(kind, inspect.UnionType):
        return frozenset().union(*map(_readable, kind.types))
    if isinstance(kind, inspect.Metadata):
        return _readable(kind.type)
    return _READ_AS.get(type(kind), _PLAIN)
