"""Exceptions to bytes and back: the same type where it can be rebuilt, its text always."""

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from traceback import StackSummary, TracebackException
from types import ModuleType
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from perdure.authoring.likeness import Likeness, likeness_of, made_of, members_of
from perdure.authoring.tagging import is_same, tag, untag
from perdure.core.codec import Codec
from perdure.core.errors import NotDecodable, TaskFailed

MAX_MESSAGE: Final = 10_000
MAX_TRACEBACK: Final = 8_000
MAX_TYPE_NAME: Final = 1_000

OUR_FILES: Final = str(Path(__file__).parent.parent) + os.sep

MAX_MEMBERS: Final = 1_000
"""Exceptions in a group, those of groups within it counted in. Larger ones are stored as text."""

MAX_LEVELS: Final = 20
"""Groups within groups."""

MIN_SHARE: Final = 100
"""Characters of text that each member has at least, however many share what one exception has."""

# They can't be raised into a coroutine.
NEVER_REBUILT: Final = (StopIteration, StopAsyncIteration)


class Failure(
    msgspec.Struct, frozen=True, omit_defaults=True, rename={"type_name": "type"}, kw_only=True
):
    """An exception as it is stored: as text, and with its likeness if it can be rebuilt. Then it has `args`.

    A group that can be rebuilt has its members, each by itself: as text, if nothing else.
    """

    type_name: str
    message: str
    traceback: str
    args: list[Any] | UnsetType = UNSET
    attributes: dict[str, Any] = {}
    lost: list[str] = []
    is_bare: bool = False
    is_tagged: bool = False
    """Whether the args and attributes have tags."""
    members: list["Failure"] = []
    members_at: int | None = None

    def likeness(self) -> Likeness:
        state: list[Any] = [self.args, self.attributes]
        args, attributes = untag(state) if self.is_tagged else state
        return Likeness(args, attributes, self.lost, self.is_bare, self.members_at)


def encode_failure(codec: Codec, error: BaseException) -> bytes:
    """The payload of `error`. Never refuses, whatever the methods and attributes of `error` do.

    Its likeness is stored only if that, and the exception made of it, come back the same.
    """
    failure = _text_of(error, MAX_MESSAGE, MAX_TRACEBACK)
    try:
        if _is_within_bounds(error):
            return codec.encode(_with_likeness(codec, error, failure))
    except BaseException:  # noqa: S110 - user code ran, and it may raise anything
        pass
    return codec.encode(failure)


def decode_failure(
    codec: Codec, payload: bytes | None, *, what: str, kind: type[TaskFailed] = TaskFailed
) -> Exception:
    """The exception that `payload` holds, of its own type where that is found and can be made again.

    Otherwise one of type `kind`, which says the same as text. `what` names what has failed, such as
    "task 'charge' (step root.3)". A payload of None was erased.
    """
    if payload is None:
        return _textless(kind, f"{what} failed, and its error was erased", "only the fact is kept")
    try:
        failure = codec.decode(payload, Failure)
    except NotDecodable as error:
        return _textless(
            kind,
            f"{what} failed, and its error can't be read ({error.what})",
            "the stored error is damaged, or was written by another codec",
        )
    return _made_of(failure, what, kind)


def _made_of(failure: Failure, what: str, kind: type[TaskFailed]) -> Exception:
    """The exception that was stored, or one of type `kind` in its place."""
    again = _rebuilt(failure, what, kind)
    if again is not None:
        with suppress(Exception):  # an exception that takes no notes is still the right one
            BaseException.add_note(again, f"{what} failed with:\n{failure.traceback}")
        return again
    said = f": {failure.message}" if failure.message else ""
    return kind(
        what=f"{what} failed with {failure.type_name}{said}",
        remedy=f"its traceback is in .traceback; {_advice(failure.type_name)}",
        type_name=failure.type_name,
        message=failure.message,
        traceback=failure.traceback,
    )


def _advice(type_name: str) -> str:
    """How an exception of that type could have been caught as itself."""
    if type_name.startswith("builtins:"):
        return "to catch it by type, raise an exception of your own with JSON-like arguments in its place"
    return "to catch it by its own type, define that at module level and keep only JSON-like values in it"


def _textless(kind: type[TaskFailed], what: str, remedy: str) -> TaskFailed:
    return kind(what=what, remedy=remedy, type_name="", message="", traceback="")


def _type_name(error: BaseException) -> str:
    cls = type(error)
    return _attempt(lambda: f"{cls.__module__}:{cls.__qualname__}") or "builtins:BaseException"


def _text_of(error: BaseException, max_message: int, max_traceback: int) -> Failure:
    """`error` as text alone."""
    type_name = _storable(_type_name(error))[:MAX_TYPE_NAME]
    message = _message(error, type_name)
    if len(message) > max_message:
        message = message[: max_message - 1] + "…"
    traceback = _traceback(error) or f"{type_name}: {message}"
    return Failure(type_name=type_name, message=message, traceback=traceback[-max_traceback:])


def _message(error: BaseException, type_name: str) -> str:
    text = _attempt(lambda: _storable(str(error)))
    if text is None:
        text = _attempt(lambda: _storable(repr(error)))
    if text is None:
        text = f"an exception of type {type_name} without a readable text"
    return text


def _traceback(error: BaseException) -> str | None:
    return _attempt(lambda: _storable(_formatted(error)))


def _attempt(read: Callable[[], str]) -> str | None:
    try:
        return read()
    except BaseException:  # user code ran, and it may raise anything
        return None


def _storable(text: str) -> str:
    """`text` as a plain str, with escapes in place of lone surrogates, which UTF-8 does not have."""
    return str.encode(text, errors="backslashreplace").decode()


def _formatted(error: BaseException) -> str:
    """The traceback with its causes, as Python prints it, without our own frames."""
    whole = TracebackException(type(error), error, error.__traceback__, compact=True)
    found: list[TracebackException | None] = [whole]
    while found:
        part = found.pop()
        if part is not None:
            theirs = [frame for frame in part.stack if not frame.filename.startswith(OUR_FILES)]
            part.stack = StackSummary.from_list(theirs)
            found += [part.__cause__, part.__context__, *(part.exceptions or ())]
    return "".join(whole.format())


def _faithful(codec: Codec, error: BaseException, type_name: str) -> Likeness | None:
    """A likeness that survives the codec; None if there is none."""
    module, _, qualname = type_name.partition(":")
    # Imported already, or the name does not lead to this class.
    cls = _exception_class(sys.modules.get(module), qualname)
    if cls is not type(error):
        return None
    likeness = likeness_of(error)
    if likeness is None:
        return None
    state = [likeness.args, likeness.attributes]
    again = untag(codec.decode(codec.encode(tag(state)), list[Any]))
    return likeness if is_same(state, again) else None


def _is_within_bounds(error: BaseException) -> bool:
    """Whether a group has few members, on few levels; others always are."""
    level, found = [error], 0
    for _ in range(MAX_LEVELS):
        level = [member for each in level for member in members_of(each)]
        found += len(level)
        if not level or found > MAX_MEMBERS:
            return not level
    return False


def _with_likeness(codec: Codec, error: BaseException, failure: Failure) -> Failure:
    """`failure` with what else is stored of `error`; as it is, if that can't be rebuilt."""
    likeness = _faithful(codec, error, failure.type_name)
    if likeness is None:
        return failure
    state = [likeness.args, likeness.attributes]
    args, attributes = tagged = tag(state)
    return msgspec.structs.replace(
        failure,
        args=args,
        attributes=attributes,
        lost=likeness.lost,
        is_bare=likeness.is_bare,
        is_tagged=not is_same(tagged, state),
        members=_members(codec, error),
        members_at=likeness.members_at,
    )


def _members(codec: Codec, group: BaseException) -> list[Failure]:
    """The members of a group. Their texts are part of its own, as far as there is room; so they are not as long."""
    members = members_of(group)
    count = max(1, len(members))
    limits = max(MIN_SHARE, MAX_MESSAGE // count), max(MIN_SHARE, MAX_TRACEBACK // count)
    return [_member(codec, each, *limits) for each in members]


def _member(codec: Codec, error: BaseException, max_message: int, max_traceback: int) -> Failure:
    failure = _text_of(error, max_message, max_traceback)
    try:
        return _with_likeness(codec, error, failure)
    except BaseException:  # user code ran, and it may raise anything
        return failure


def _rebuilt(failure: Failure, what: str, kind: type[TaskFailed]) -> Exception | None:
    """The exception itself; None if it can't be rebuilt in this process."""
    if failure.args is UNSET:
        return None
    module, _, qualname = failure.type_name.partition(":")
    try:
        cls = _exception_class(import_module(module), qualname)
        if cls is None:
            return None
        members = [_made_of(member, what, kind) for member in failure.members]
        return made_of(cls, failure.likeness(), members)
    except (Exception, SystemExit):  # a module that is a script may exit when it is imported
        return None


def _exception_class(module: ModuleType | None, qualname: str) -> type[BaseException] | None:
    found: object = module
    for name in qualname.split("."):
        found = getattr(found, name, None)
    # A group of base exceptions is one of exceptions when it comes back, as what is none comes back as text.
    if isinstance(found, type) and (issubclass(found, Exception) or found is BaseExceptionGroup):
        return None if issubclass(found, NEVER_REBUILT) else found
    return None
