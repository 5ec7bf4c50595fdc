"""Likenesses: what an exception is made of, so that another like it can be made in another process.

Nothing runs for it but the class's own construction. Where `cls(*args)` makes something else, as with a constructor
that takes other arguments than it passes on, the likeness is *bare*: made by `__new__` alone, and given everything.

The members of a group have likenesses of their own. That of the group has all the rest: it is compared with a group of
the same members, and one that is made of it may have others.
"""

import operator
from collections.abc import Iterator, Sequence
from contextlib import suppress
from types import MemberDescriptorType
from typing import Any, Final

import msgspec

from perdure.authoring.tagging import is_same

_MISSING: Final = object()

# The object that lacks the attribute. It is never stored, and the text tells what matters.
_UNTOLD: Final = vars(AttributeError)["obj"]

_GIVEN: Final = frozenset({"message", "exceptions"})
"""Attributes of a group that `__new__` sets, and nobody else can."""


class Likeness(msgspec.Struct, frozen=True):
    """The args of an exception, and those of its attributes that its construction from them does not give.

    `lost` are private attributes of types that can't be stored, such as a library's connection. The exception comes
    back without them: to ask for one is an error, and not a wrong answer.
    """

    args: list[Any]
    attributes: dict[str, Any]
    lost: list[str]
    is_bare: bool
    members_at: int | None = None
    """Which of a group's args is the list of its members. It is empty here."""


def likeness_of(error: BaseException) -> Likeness | None:
    """That of `error`, if one exists that is the same in type, args, text and attributes."""
    for is_bare in (False, True):
        # The constructor is the program's: it may raise anything, and so may what is compared.
        with suppress(BaseException):
            args, members_at = _without_members(error)
            given = _given(error) if is_bare else {}
            likeness = Likeness(args, given, [], is_bare, members_at)
            again = _make(type(error), likeness, members_of(error))
            found = _compare(error, again)
            if found is None:
                continue
            likeness = Likeness(args, given | found[0], found[1], is_bare, members_at)
            _complete(again, likeness)
            if _is_like(again, error):
                return likeness
    return None


def made_of(
    cls: type[BaseException], likeness: Likeness, members: Sequence[Exception] = ()
) -> Exception | None:
    """A new exception of that class; None if the class makes another.

    A `BaseExceptionGroup` of exceptions is an `ExceptionGroup`, as always in Python.
    """
    again = _make(cls, likeness, members)
    wanted = ExceptionGroup if cls is BaseExceptionGroup else cls
    if type(again) is not wanted or not isinstance(again, Exception):
        return None
    if not _are_identical(members_of(again), members):
        return None
    _complete(again, likeness)
    return again


def members_of(error: BaseException) -> tuple[BaseException, ...]:
    """The members of a group; others have none."""
    return error.exceptions if isinstance(error, BaseExceptionGroup) else ()


def _make(
    cls: type[BaseException], likeness: Likeness, members: Sequence[BaseException]
) -> BaseException:
    args = list(likeness.args)
    if likeness.members_at is not None:
        args[likeness.members_at] = type(args[likeness.members_at])(members)
    if not likeness.is_bare:
        return cls(*args)
    again: BaseException
    if issubclass(cls, BaseExceptionGroup):
        # Not by the class's own `__new__`: who adds an argument to it mostly does not pass that on.
        again = BaseExceptionGroup.__new__(cls, likeness.attributes["message"], members)
    else:
        again = cls.__new__(cls, *args)
    # A class may have its own ideas of setting attributes, such as none.
    BaseException.__setattr__(again, "args", tuple(args))
    return again


def _complete(again: BaseException, likeness: Likeness) -> None:
    members = dict(_members(type(again)))
    for name, value in likeness.attributes.items():
        if name not in members:
            vars(again)[name] = value
        elif not (name in _GIVEN and isinstance(again, BaseExceptionGroup)):
            members[name].__set__(again, value)
    for name in likeness.lost:
        vars(again).pop(name, None)


def _compare(error: BaseException, again: BaseException) -> tuple[dict[str, Any], list[str]] | None:
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


def _is_like(again: BaseException, error: BaseException) -> bool:
    ours, theirs = _without_members(again), _without_members(error)
    return is_same(list(ours), list(theirs)) and str(again) == str(error)


def _given(error: BaseException) -> dict[str, Any]:
    """What a bare group is made of, beside its members."""
    return {"message": error.message} if isinstance(error, BaseExceptionGroup) else {}


def _without_members(error: BaseException) -> tuple[list[Any], int | None]:
    """The args of `error`, and which of them is the list of its members, if one is. That is empty then."""
    args, members = list(error.args), members_of(error)
    for index, arg in enumerate(args) if members else ():
        if type(arg) in (list, tuple) and _are_identical(arg, members):
            args[index] = type(arg)()
            return args, index
    return args, None


def _are_identical(some: Sequence[object], others: Sequence[object]) -> bool:
    return len(some) == len(others) and all(map(operator.is_, some, others))


def _attributes(error: BaseException) -> dict[str, Any]:
    """What `error` holds beside its args: its dict, and its slots and what builtin types keep like slots."""
    found = {name: value for name, value in vars(error).items() if name != "__notes__"}
    for name, member in _members(type(error)):
        with suppress(AttributeError):  # a slot that was never set
            found[name] = member.__get__(error)
    return found


def _members(cls: type[BaseException]) -> Iterator[tuple[str, MemberDescriptorType]]:
    for base in cls.__mro__:
        if not issubclass(Exception, base):
            for name, member in vars(base).items():
                if isinstance(member, MemberDescriptorType) and member is not _UNTOLD:
                    yield name, member
