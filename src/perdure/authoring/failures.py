"""Exceptions to bytes and back: the same type where it can be rebuilt, its text always."""

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from traceback import StackSummary, TracebackException
from types import ModuleType, NoneType
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from perdure.core.codec import Codec
from perdure.core.errors import NotDecodable, TaskFailed

MAX_MESSAGE: Final = 10_000
MAX_TRACEBACK: Final = 8_000
MAX_TYPE_NAME: Final = 1_000

OUR_FILES: Final = str(Path(__file__).parent.parent) + os.sep

PLAIN: Final = frozenset({NoneType, bool, int, float, str})

# A group holds exceptions, which are not JSON; the other two can't be raised into a coroutine.
NEVER_REBUILT: Final = (BaseExceptionGroup, StopIteration, StopAsyncIteration)


class Failure(
    msgspec.Struct, frozen=True, omit_defaults=True, rename={"type_name": "type"}, kw_only=True
):
    """An exception as it is stored. `args` are those of the constructor, if it can be rebuilt."""

    type_name: str
    message: str
    traceback: str
    args: list[Any] | UnsetType = UNSET


def encode_failure(codec: Codec, error: BaseException) -> bytes:
    """The payload of `error`. Never refuses, whatever the methods and attributes of `error` do.

    The arguments are stored only if they, and the exception made of them, come back the same.
    """
    type_name = _storable(_type_name(error))[:MAX_TYPE_NAME]
    message = _message(error, type_name)
    failure = Failure(
        type_name=type_name,
        message=message,
        traceback=_traceback(error) or f"{type_name}: {message}"[-MAX_TRACEBACK:],
    )
    try:
        args = _faithful_args(codec, error, type_name)
        if args is not None:
            return codec.encode(msgspec.structs.replace(failure, args=args))
    except BaseException:  # noqa: S110 - user code ran, and it may raise anything
        pass
    return codec.encode(failure)


def decode_failure(
    codec: Codec, payload: bytes | None, *, what: str, kind: type[TaskFailed] = TaskFailed
) -> Exception:
    """The exception that `payload` holds, of its own type where that is found and takes its arguments.

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
    again = _rebuilt(failure)
    if again is not None:
        with suppress(Exception):  # an exception that takes no notes is still the right one
            BaseException.add_note(again, f"{what} failed with:\n{failure.traceback}")
        return again
    said = f": {failure.message}" if failure.message else ""
    return kind(
        what=f"{what} failed with {failure.type_name}{said}",
        remedy="its traceback is in .traceback; to catch it by its own type, define that at module "
        "level and give its constructor JSON-like arguments",
        type_name=failure.type_name,
        message=failure.message,
        traceback=failure.traceback,
    )


def _textless(kind: type[TaskFailed], what: str, remedy: str) -> TaskFailed:
    return kind(what=what, remedy=remedy, type_name="", message="", traceback="")


def _type_name(error: BaseException) -> str:
    cls = type(error)
    return _attempt(lambda: f"{cls.__module__}:{cls.__qualname__}") or "builtins:BaseException"


def _message(error: BaseException, type_name: str) -> str:
    text = _attempt(lambda: _storable(str(error)))
    if text is None:
        text = _attempt(lambda: _storable(repr(error)))
    if text is None:
        text = f"an exception of type {type_name} without a readable text"
    return text if len(text) <= MAX_MESSAGE else text[: MAX_MESSAGE - 1] + "…"


def _traceback(error: BaseException) -> str | None:
    return _attempt(lambda: _storable(_formatted(error))[-MAX_TRACEBACK:])


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


def _faithful_args(codec: Codec, error: BaseException, type_name: str) -> list[Any] | None:
    """Arguments that survive the codec and rebuild `error`; None if there are none."""
    module, _, qualname = type_name.partition(":")
    # Imported already, or the name does not lead to this class.
    cls = _exception_class(sys.modules.get(module), qualname)
    if cls is not type(error):
        return None
    args = _constructor_args(error)
    if not _same(args, codec.decode(codec.encode(args), list[Any])):
        return None
    again = cls(*args)
    faithful = (
        type(again) is cls
        and _same(list(again.args), list(error.args))
        and str(again) == str(error)
    )
    return args if faithful else None


def _constructor_args(error: BaseException) -> list[Any]:
    if isinstance(error, OSError) and error.filename is not None:
        # OSError takes these but keeps them out of its args. The None is Windows' error number.
        if error.filename2 is None:
            return [*error.args, error.filename]
        return [*error.args, error.filename, None, error.filename2]
    return list(error.args)


def _same(one: object, other: object) -> bool:
    """Equal, and of the same plain types all the way down."""
    if type(one) is not type(other):
        return False
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return len(one) == len(other) and all(
            type(key) is str and key in other and _same(item, other[key])
            for key, item in one.items()
        )
    return type(one) in PLAIN and one == other


def _rebuilt(failure: Failure) -> Exception | None:
    """The exception itself; None if it can't be rebuilt in this process."""
    if isinstance(failure.args, UnsetType):
        return None
    module, _, qualname = failure.type_name.partition(":")
    try:
        cls = _exception_class(import_module(module), qualname)
        again = None if cls is None else cls(*failure.args)
    except (Exception, SystemExit):  # a module that is a script may exit when it is imported
        return None
    return again if type(again) is cls else None


def _exception_class(module: ModuleType | None, qualname: str) -> type[Exception] | None:
    found: object = module
    for name in qualname.split("."):
        found = getattr(found, name, None)
    if isinstance(found, type) and issubclass(found, Exception):
        return None if issubclass(found, NEVER_REBUILT) else found
    return None
