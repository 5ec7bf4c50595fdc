"""SQLite's errors about files that can't be written, as the store's own errors."""

from collections.abc import Iterator
from contextlib import contextmanager

import apsw

from perdure.core.errors import StoreUnavailable

WRITE_ERRORS = (apsw.FullError, apsw.IOError, apsw.ReadOnlyError, apsw.CantOpenError)
"""Errors of the disk or of file permissions, not of a statement."""


def cannot_write(path: str, error: Exception) -> StoreUnavailable:
    """The error for a write that failed completely: nothing was written."""
    if isinstance(error, apsw.FullError):
        return StoreUnavailable(
            f"{path} can't grow: its disk is full ({error})",
            "free space there (the file and its -wal file grow), or raise the quota; nothing was written, and the "
            "runs resume by themselves when there is space",
        )
    return StoreUnavailable(
        f"{path} can't be written ({error})",
        "check the disk, and that this user may write the file and its directory; nothing was written, and the "
        "runs resume by themselves when the file can be written again",
    )


@contextmanager
def typed_writes(path: str) -> Iterator[None]:
    try:
        yield
    except WRITE_ERRORS as error:
        raise cannot_write(path, error) from error
