"""Checks of arguments before any write: one program's mistake must not harm other participants."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, cast

from perdure.core.errors import InputError
from perdure.core.operations.log import LogLevel
from perdure.core.operations.timing import LedgerSettings
from perdure.operations.callbacks import CallCallback
from perdure.operations.resources import require_resource

_MAX_PID: Final = 2**63 - 1
_MAX_DEPTH: Final = 100


def require_directory(path: object) -> Path:
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str) or "\0" in text:
        raise InputError(f"base_path is {path!r:.200}", "pass a directory, as text or a Path")
    return Path(text).absolute()


def require_url(store: object) -> str:
    if not isinstance(store, str):
        raise InputError(f"store is {store!r:.200}", "pass the URL of a store, as text")
    return store


def require_settings(settings: object) -> LedgerSettings:
    if not isinstance(settings, LedgerSettings):
        raise InputError(f"settings is {settings!r:.200}", "pass LedgerSettings(...), or None")
    return settings


def require_pid(pid: object) -> int:
    if type(pid) is not int or not 0 < pid <= _MAX_PID:
        raise InputError(
            f"participant_pid is {pid!r:.200}",
            "pass a process id, or None for the id of this process",
        )
    return pid


def require_flag(what: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InputError(f"{what} is {value!r:.200}", "pass True or False")
    return value


def require_callback(callback: object) -> CallCallback[Any]:
    """The callback; for `None` one without functions."""
    if callback is None:
        return CallCallback()
    if not isinstance(callback, CallCallback):
        raise InputError(f"callback is {callback!r:.200}", "pass CallCallback(...), or None")
    return callback


def require_resource_paths(resources: object) -> tuple[str, ...]:
    """Absolute paths. Refuses a single text, whose letters would each be taken for a path."""
    is_one = isinstance(resources, str | bytes | os.PathLike)
    if is_one or not isinstance(resources, Iterable):
        raise InputError(f"resources is {resources!r:.200}", "pass a list of paths")
    return tuple(require_resource(path) for path in resources)


def require_level(level: object) -> LogLevel:
    try:
        return LogLevel(cast("str", level))
    except ValueError as error:
        raise InputError(
            f"level is {level!r:.200}", f"pass one of {', '.join(LogLevel)}"
        ) from error


def require_message(message: object) -> str:
    if not isinstance(message, str):
        raise InputError(f"message is {message!r:.200}", "pass text")
    return message


def require_depth(depth: object) -> int:
    if type(depth) is not int or not 0 <= depth <= _MAX_DEPTH:
        raise InputError(f"depth is {depth!r:.200}", f"pass a whole number, 0 to {_MAX_DEPTH}")
    return depth
