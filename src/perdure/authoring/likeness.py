"""Likenesses: what an exception is made of, so that another like it can be made in another process.

Nothing runs for it but the class's own construction. Where `cls(*args)` makes something else, as with a constructor
that takes other arguments than it passes on, the likeness is *bare*: made by `__new__` alone, and given everything.
"""

from collections.abc import Iterator
from contextlib import suppress
from types import MemberDescriptorType
from typing import Any, Final

import msgspec

from perdure.authoring.tagging import is_same

_MISSING: Final = object()

# The object that lacks the attribute. It is never stored, and the text tells what matters.
_UNTOLD: Final = vars(AttributeError)["obj"]


class Likeness(msgspec.Struct, frozen=True):
    """The args of an exception, and those of its attributes that its construction from them does not give.

    `lost` are private attributes of types that can't be stored, such as a library's connection. The exception comes
    back without them: to ask for one is an error, and not a wrong answer.
    """

    args: list[Any]
    attributes: dict[str, Any]
    lost: list[str]
    is_bare: bool


def likeness_of(error: Exception) -> Likeness | None:
    """That of `error`, if one exists that is the same in type, args, text and attributes."""
    args = list(error.args)
    for is_bare in (False, True):
        # The constructor is the program's: it may raise anything, and so may what is compared.
        with suppress(BaseException):
            again = _make(type(error), args, is_bare=is_bare)
            found = _compare(error, again)
            if found is None:
                continue
            likeness = Likeness(args, *found, is_bare)
            _complete(again, likeness)
            if _is_like(again, error):
                return likeness
    return None


def made_of(cls: type[Exception], likeness: Likeness) -> Exception | None:
    """A new exception of that class; None if the class makes another."""
    again = _make(cls, likeness.args, is_bare=likeness.is_bare)
    if type(again) is not cls:
        return None
    _complete(again, likeness)
    return again


def _make(cls: type[Exception], args: list[Any], *, is_bare: bool) -> Exception:
    if not is_bare:
        return cls(*args)
    again = cls.__new__(cls, *args)
    # A class may have its own ideas of setting attributes, such as none.
    BaseException.__setattr__(again, "args", tuple(args))
    return again


def _complete(again: Exception, likeness: Likeness) -> None:
    members = dict(_members(type(again)))
    for name, value in likeness.attributes.items():
        if name in members:
            members[name].__set__(again, value)
        else:
            vars(again)[name] = value
    for name in likeness.lost:
        vars(again).pop(name, None)


def _compare(error: Exception, again: Exception) -> tuple[dict[str, Any], list[str]] | None:
    """The attributes that `again` is to be given, and those that it is to lose; None if that is not enough."""
    theirs, ours = _attributes(error), _attributes(again)
    if type(again) is not type(error) or ours.keys() - theirs.keys():
        return None
    attributes: dict[str, Any] = {}
    lost: list[str] = []
    for name, value in theirs.items():
        other = ours.get(name, _MISSING)
        if is_same(value, other):
            continue
        if is_same(value, value):
            attributes[name] = value
        elif type(value) is type(other) and value == other:
            continue
        elif name.startswith("_") and name in vars(error):
            lost.append(name)
        else:
            return None
    return attributes, lost


def _is_like(again: Exception, error: Exception) -> bool:
    return is_same(list(again.args), list(error.args)) and str(again) == str(error)


def _attributes(error: Exception) -> dict[str, Any]:
    """What `error` holds beside its args: its dict, and its slots and what builtin types keep like slots."""
    found = {name: value for name, value in vars(error).items() if name != "__notes__"}
    for name, member in _members(type(error)):
        with suppress(AttributeError):  # a slot that was never set
            found[name] = member.__get__(error)
    return found


def _members(cls: type[Exception]) -> Iterator[tuple[str, MemberDescriptorType]]:
    for base in cls.__mro__:
        if not issubclass(Exception, base):
            for name, member in vars(base).items():
                if isinstance(member, MemberDescriptorType) and member is not _UNTOLD:
                    yield name, member
