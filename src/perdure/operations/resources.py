"""Temporary files and directories that are removed when their call or operation ends."""

import logging
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from perdure.core.errors import InputError
from perdure.core.operations.names import require_words

_log = logging.getLogger("perdure.operations")


def require_resource(path: object) -> str:
    """The absolute path. Refuses roots, mount points and parents of the working directory."""
    named = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(named, str) or "\0" in named:
        raise InputError(f"temporary resource is {path!r:.200}", "pass a path, as text or a Path")
    text = os.path.abspath(named)
    require_words("temporary resource", text)
    if not _is_removable(text):
        raise InputError(
            f"{text!r} can't be a temporary resource",
            "pass a file or directory of your own: not a root, a mount point or a parent of the working directory",
        )
    return text


def remove(paths: Iterable[str]) -> None:
    """Removes files and directories, without following links. Logs those that it can't remove."""
    for text in paths:
        path = Path(text)
        if not path.is_absolute() or not _is_removable(text):
            _log.warning(
                "did not remove temporary resource %r: not a removable absolute path", text
            )
            continue
        try:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        except OSError as error:
            _log.warning("could not remove temporary resource %r (%s)", text, error)


def _is_removable(text: str) -> bool:
    """Whether the path is normalized, no mount point, and does not contain the working directory."""
    if os.path.normpath(text) != text or os.path.ismount(text):
        return False
    return os.path.commonpath([text, os.getcwd()]) != text
