"""The state of an exception: what another process needs to rebuild an equal one.

Rebuilding runs no user code but the class's construction. If `cls(*args)` gives a different exception, for example
because the constructor passes on other arguments than it takes, the state is *bare*: the exception is rebuilt with
`__new__` alone, and all its attributes are set.

Each member of an exception group has a state of its own. The group's state covers the rest: it is verified with the
original members, and may be rebuilt with others.
"""

import operator
from collections.abc import Iterator, Sequence
from contextlib import suppress
from types import MemberDescriptorType
from typing import Any, Final

import msgspec

from perdure.authoring.values.tagging import is_same

_MISSING: Final = object()

# `AttributeError.obj`, the object that lacks the attribute, is never stored: the message names what matters.
_NOT_STORED: Final = vars(AttributeError)["obj"]

_GIVEN: Final = frozenset({"message", "exceptions"})
"""Attributes of a group that only `__new__` can set."""


class ExceptionState(msgspec.Struct, frozen=True):
    """The args of an exception, and the attributes that constructing it from these args does not set.

    `lost` names private attributes of types that can't be stored, such as a library's connection. The rebuilt exception
    lacks them, so reading one raises `AttributeError` instead of returning a wrong value.
    """

    args: list[Any]
    attributes: dict[str, Any]
    lost: list[str]
    is_bare: bool
    members_at: int | None = None
    """The index of the group's arg that lists its members. In `args` that list is empty."""


def state_of(error: BaseException) -> ExceptionState | None:
    """The state from which an exception of the same type, args, text and attributes can be rebuilt; else None."""
    for is_bare in (False, True):
        # Constructors and comparisons are user code: they may raise anything.
        with suppress(BaseException):
            args, members_at = _without_members(error)
            given = _given(error) if is_bare else {}
            state = ExceptionState(args, given, [], is_bare, members_at)
            again = _make(type(error), state, members_of(error))
            found = _compare(error, again)
            if found is None:
                continue
            state = ExceptionState(args, given | found[0], found[1], is_bare, members_at)
            _complete(again, state)
            if _is_like(again, error):
                return state
    return None


def exception_from(
    cls: type[BaseException], state: ExceptionState, members: Sequence[Exception] = ()
) -> Exception | None:
    """A new exception of that class; None if constructing it gives another class or other members.

    A `BaseExceptionGroup` whose members are all `Exception` becomes an `ExceptionGroup`, as always in Python.
    """
    again = _make(cls, state, members)
    wanted = ExceptionGroup if cls is BaseExceptionGroup else cls
    if type(again) is not wanted or not isinstance(again, Exception):
        return None
    if not _are_identical(members_of(again), members):
        return None
    _complete(again, state)
    return again


def members_of(error: BaseException) -> tuple[BaseException, ...]:
    """The members of an exception group; none for other exceptions."""
    return error.exceptions if isinstance(error, BaseExceptionGroup) else ()


def _make(
    cls: type[BaseException], state: ExceptionState, members: Sequence[BaseException]
) -> BaseException:
    args = list(state.args)
    if state.members_at is not None:
        args[state.members_at] = type(args[state.members_at])(members)
    if not state.is_bare:
        return cls(*args)
    again: BaseException
    if issubclass(cls, BaseExceptionGroup):
        # Not the class's own `__new__`: one with an extra argument usually does not pass it on.
        again = BaseExceptionGroup.__new__(cls, state.attributes["message"], members)
    else:
        again = cls.__new__(cls, *args)
    # The class may override `__setattr__`, for example to refuse.
    BaseException.__setattr__(again, "args", tuple(args))
    return again


def _complete(again: BaseException, state: ExceptionState) -> None:
    members = dict(_members(type(again)))
    for name, value in state.attributes.items():
        if name not in members:
            vars(again)[name] = value
        elif not (name in _GIVEN and isinstance(again, BaseExceptionGroup)):
            members[name].__set__(again, value)
    for name in state.lost:
        vars(again).pop(name, None)


def _compare(error: BaseException, again: BaseException) -> tuple[dict[str, Any], list[str]] | None:
    """The attributes to set on `again` and those to remove from it; None if that can't make it equal to `error`."""
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
    """The attributes from which a bare group is constructed, besides its members."""
    return {"message": error.message} if isinstance(error, BaseExceptionGroup) else {}


def _without_members(error: BaseException) -> tuple[list[Any], int | None]:
    """The args of `error` with the list of its members emptied, and the index of that list, if there is one."""
    args, members = list(error.args), members_of(error)
    for index, arg in enumerate(args) if members else ():
        if type(arg) in (list, tuple) and _are_identical(arg, members):
            args[index] = type(arg)()
            return args, index
    return args, None


def _are_identical(some: Sequence[object], others: Sequence[object]) -> bool:
    return len(some) == len(others) and all(map(operator.is_, some, others))


def _attributes(error: BaseException) -> dict[str, Any]:
    """What `error` holds besides its args: its `__dict__`, its slots, and members of builtin types."""
    found = {name: value for name, value in vars(error).items() if name != "__notes__"}
    for name, member in _members(type(error)):
        with suppress(AttributeError):  # a slot that was never set
            found[name] = member.__get__(error)
    return found


def _members(cls: type[BaseException]) -> Iterator[tuple[str, MemberDescriptorType]]:
    for base in cls.__mro__:
        if not issubclass(Exception, base):
            for name, member in vars(base).items():
                if isinstance(member, MemberDescriptorType) and member is not _NOT_STORED:
                    yield name, member
