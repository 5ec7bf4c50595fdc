"""Temporary files and directories that go with the call or the operation that named them."""

import logging
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from perdure.core.errors import InputError
from perdure.core.operations.names import require_words

_log = logging.getLogger("perdure.operations")


def require_resource(path: object) -> str:
    """The path as the ledger keeps it: absolute, and nothing that could not be meant."""
    named = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(named, str) or "\0" in named:
        raise InputError(f"{path!r:.200} as a temporary resource", "pass a path, as text or a Path")
    text = os.path.abspath(named)
    require_words("temporary resource", text)
    if not _is_removable(text):
        raise InputError(
            f"{text!r} as a temporary resource", "name a file or directory of your own, not a root"
        )
    return text


def remove(paths: Iterable[str]) -> None:
    """Remove files and directories. What is gone already, or can't be removed, is left; links are not followed."""
    for text in paths:
        path = Path(text)
        if not path.is_absolute() or not _is_removable(text):
            _log.warning(
                "temporary resource %r is not removed: not an absolute path of its own", text
            )
            continue
        try:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        except OSError as error:
            _log.warning("temporary resource %r is not removed (%s)", text, error)


def _is_removable(text: str) -> bool:
    """Neither a root nor a mount, nor anything that this process stands in."""
    if os.path.normpath(text) != text or os.path.ismount(text):
        return False
    return os.path.commonpath([text, os.getcwd()]) != text
