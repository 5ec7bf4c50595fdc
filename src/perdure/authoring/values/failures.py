"""Exceptions to payloads and back. An exception keeps its type if it can be rebuilt, and its text in any case."""

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from traceback import StackSummary, TracebackException
from types import ModuleType
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from perdure.authoring.modules import modules_named, type_name
from perdure.authoring.values.exception_state import (
    ExceptionState,
    exception_from,
    members_of,
    state_of,
)
from perdure.authoring.values.tagging import is_same, mark_types, read_marked
from perdure.core.codec import Codec
from perdure.core.errors import NotDecodable, TaskFailed
from perdure.core.secrets import REVEALED, masked_json

MAX_MESSAGE: Final = 10_000
MAX_TRACEBACK: Final = 8_000
MAX_TYPE_NAME: Final = 1_000

OUR_FILES: Final = str(Path(__file__).parents[2]) + os.sep

MAX_MEMBERS: Final = 1_000
"""Exceptions in a group, including those of nested groups. Larger groups are stored as text."""

MAX_LEVELS: Final = 20
"""Levels of nested groups."""

MIN_SHARE: Final = 100
"""Characters of text that each member of a group keeps at least. All members share the limit of one exception."""

# Python can't raise these into a coroutine.
NEVER_REBUILT: Final = (StopIteration, StopAsyncIteration)


class Failure(
    msgspec.Struct, frozen=True, omit_defaults=True, rename={"type_name": "type"}, kw_only=True
):
    """A stored exception: its text and, if it can be rebuilt, its `ExceptionState`; then `args` is set.

    A group that can be rebuilt has its members, each stored as text or with its state.
    """

    type_name: str
    message: str
    traceback: str
    args: list[Any] | UnsetType = UNSET
    attributes: dict[str, Any] = {}
    lost: list[str] = []
    is_bare: bool = False
    is_tagged: bool = False
    """Whether `args` and `attributes` are tagged (see `tagging`)."""
    members: list["Failure"] = []
    members_at: int | None = None

    def state(self) -> ExceptionState:
        state: list[Any] = [self.args, self.attributes]
        args, attributes = read_marked(state) if self.is_tagged else state
        return ExceptionState(args, attributes, self.lost, self.is_bare, self.members_at)


def encode_failure(codec: Codec, error: BaseException) -> bytes:
    """The payload of `error`. Never raises, whatever the methods and attributes of `error` do.

    The exception's state is stored only if the state survives the codec and rebuilds an equal exception.
    """
    failure = _text_of(error, MAX_MESSAGE, MAX_TRACEBACK)
    try:
        if _is_within_bounds(error):
            whole = _with_state(codec, error, failure)
            if REVEALED:
                whole = masked_json(whole, Failure) or failure
            return codec.encode(whole)
    except BaseException:  # noqa: S110 - user code ran, and it may raise anything
        pass
    return codec.encode(failure)


class FailureText(NamedTuple):
    """A stored exception as text, for display."""

    type_name: str
    message: str
    traceback: str


def traceback_text(error: BaseException) -> str:
    """The traceback of an exception without Perdure's frames. Never raises, whatever the exception does."""
    return _traceback(error) or _type_name(error)


def failure_text(codec: Codec, payload: bytes | None) -> FailureText:
    """The text of a stored failure, without rebuilding the exception. Never raises."""
    if payload is None:
        return FailureText("an error that was erased", "", "")
    try:
        failure = codec.decode(payload, Failure)
    except NotDecodable:
        return FailureText("an error that can't be read", "", "")
    module, _, name = failure.type_name.rpartition(":")
    type_name = name if module in ("", "builtins") else f"{module}.{name}"
    return FailureText(type_name, failure.message, failure.traceback)


def decode_failure(
    codec: Codec,
    payload: bytes | None,
    *,
    what: str,
    kind: type[TaskFailed] = TaskFailed,
    home: str | None = None,
) -> Exception:
    """The exception that `payload` holds, of its own type if this process has that type and can rebuild it.

    Otherwise an exception of type `kind` with the same text. `what` names what failed, such as
    "task 'charge' (step root.3)". A payload of None was erased. `home` is the module of the code that may catch the
    exception: it selects the class if this process has its script both as `__main__` and as an imported module.
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
    return _made_of(failure, _Reader(what, kind, home))


class _Reader(NamedTuple):
    """The parameters of `decode_failure`."""

    what: str
    kind: type[TaskFailed]
    home: str | None


def _made_of(failure: Failure, reader: _Reader) -> Exception:
    """The stored exception, or one of the reader's `kind` if it can't be rebuilt."""
    what = reader.what
    again = _rebuilt(failure, reader)
    if again is not None:
        with suppress(Exception):  # an exception that refuses notes is still the right one
            BaseException.add_note(again, f"{what} failed with:\n{failure.traceback}")
        return again
    said = f": {failure.message}" if failure.message else ""
    return reader.kind(
        what=f"{what} failed with {failure.type_name}{said}",
        remedy=f"its traceback is in .traceback; {_advice(failure.type_name)}",
        type_name=failure.type_name,
        message=failure.message,
        traceback=failure.traceback,
    )


def _advice(name: str) -> str:
    """How the program must change so that the exception can be caught by its own type."""
    if name.startswith("builtins:"):
        return "to catch it by type, raise an exception of your own with JSON-like arguments in its place"
    return "to catch it by its own type, define that at module level and keep only JSON-like values in it"


def _textless(kind: type[TaskFailed], what: str, remedy: str) -> TaskFailed:
    return kind(what=what, remedy=remedy, type_name="", message="", traceback="")


def _type_name(error: BaseException) -> str:
    return _attempt(lambda: type_name(type(error))) or "builtins:BaseException"


def _text_of(error: BaseException, max_message: int, max_traceback: int) -> Failure:
    """`error` as text alone."""
    name = _storable(_type_name(error))[:MAX_TYPE_NAME]
    message = _message(error, name)
    if len(message) > max_message:
        message = message[: max_message - 1] + "…"
    traceback = _traceback(error) or f"{name}: {message}"
    return Failure(type_name=name, message=message, traceback=traceback[-max_traceback:])


def _message(error: BaseException, name: str) -> str:
    text = _attempt(lambda: _storable(str(error)))
    if text is None:
        text = _attempt(lambda: _storable(repr(error)))
    if text is None:
        text = f"an exception of type {name} without a readable text"
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
    return REVEALED.masked(str.encode(text, errors="backslashreplace").decode())


def _formatted(error: BaseException) -> str:
    """The traceback with its causes, as Python prints it, without Perdure's frames."""
    whole = TracebackException(type(error), error, error.__traceback__, compact=True)
    found: list[TracebackException | None] = [whole]
    while found:
        part = found.pop()
        if part is not None:
            theirs = [frame for frame in part.stack if not frame.filename.startswith(OUR_FILES)]
            part.stack = StackSummary.from_list(theirs)
            found += [part.__cause__, part.__context__, *(part.exceptions or ())]
    return "".join(whole.format())


def _faithful(codec: Codec, error: BaseException) -> ExceptionState | None:
    """The exception's state, if it survives the codec; else None."""
    cls = type(error)
    # The type must be found again by its name in a module that is imported.
    if _exception_class(sys.modules.get(cls.__module__), cls.__qualname__) is not cls:
        return None
    kept = state_of(error)
    if kept is None:
        return None
    state = [kept.args, kept.attributes]
    again = read_marked(codec.decode(codec.encode(mark_types(state)), list[Any]))
    return kept if is_same(state, again) else None


def _is_within_bounds(error: BaseException) -> bool:
    """Whether a group is within MAX_MEMBERS and MAX_LEVELS; always true for other exceptions."""
    level, found = [error], 0
    for _ in range(MAX_LEVELS):
        level = [member for each in level for member in members_of(each)]
        found += len(level)
        if not level or found > MAX_MEMBERS:
            return not level
    return False


def _with_state(codec: Codec, error: BaseException, failure: Failure) -> Failure:
    """`failure` with the state of `error` added, or unchanged if `error` can't be rebuilt."""
    kept = _faithful(codec, error)
    if kept is None:
        return failure
    state = [kept.args, kept.attributes]
    args, attributes = tagged = mark_types(state)
    return msgspec.structs.replace(
        failure,
        args=args,
        attributes=attributes,
        lost=kept.lost,
        is_bare=kept.is_bare,
        is_tagged=not is_same(tagged, state),
        members=_members(codec, error),
        members_at=kept.members_at,
    )


def _members(codec: Codec, group: BaseException) -> list[Failure]:
    """The members of a group. They share the text limits of one exception, because its own text repeats theirs."""
    members = members_of(group)
    count = max(1, len(members))
    limits = max(MIN_SHARE, MAX_MESSAGE // count), max(MIN_SHARE, MAX_TRACEBACK // count)
    return [_member(codec, each, *limits) for each in members]


def _member(codec: Codec, error: BaseException, max_message: int, max_traceback: int) -> Failure:
    failure = _text_of(error, max_message, max_traceback)
    try:
        return _with_state(codec, error, failure)
    except BaseException:  # user code ran, and it may raise anything
        return failure


def _rebuilt(failure: Failure, reader: _Reader) -> Exception | None:
    """The rebuilt exception; None if it can't be rebuilt in this process."""
    if failure.args is UNSET:
        return None
    try:
        cls = _class_named(failure.type_name, reader.home)
        if cls is None:
            return None
        members = [_made_of(member, reader) for member in failure.members]
        return exception_from(cls, failure.state(), members)
    except (Exception, SystemExit):  # importing a script may exit
        return None


def _class_named(name: str, home: str | None) -> type[BaseException] | None:
    module, _, qualname = name.partition(":")
    found = (_exception_class(each, qualname) for each in modules_named(module, home))
    return next((cls for cls in found if cls is not None), None)


def _exception_class(module: ModuleType | None, qualname: str) -> type[BaseException] | None:
    found: object = module
    for name in qualname.split("."):
        found = getattr(found, name, None)
    # A rebuilt BaseExceptionGroup is an ExceptionGroup: members that are no `Exception` come back as text.
    if isinstance(found, type) and (issubclass(found, Exception) or found is BaseExceptionGroup):
        return None if issubclass(found, NEVER_REBUILT) else found
    return None
