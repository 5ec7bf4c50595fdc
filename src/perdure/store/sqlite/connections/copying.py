"""A consistent copy of a SQLite store while engines work on it."""

import os
from pathlib import Path

import apsw

from perdure.core.errors import InputError, StoreUnavailable
from perdure.store.sqlite.connections.damage import run_with_typed_errors
from perdure.store.sqlite.connections.opening import connect_to_file

PARTIAL = ".partial"
"""The suffix of a copy that is not complete."""


class Copying:
    """Copies a store into a new file beside `to`, which gets its name when the copy is checked.

    The copy is one read transaction: no writer waits for it, and it is the store as it was when the copy began.
    """

    def __init__(self, path: str, to: Path) -> None:
        if to.exists():
            raise InputError(f"{to} exists", "pass the path of a new file")
        if not to.parent.is_dir():
            raise InputError(f"there is no folder {to.parent}", "make it, or pass another path")
        self._path = path
        self._to = to
        self.partial = to.with_name(to.name + PARTIAL)
        self._connection = connect_to_file(path)

    @property
    def pages(self) -> int:
        """The size of the store."""
        return int(self._connection.pragma("page_count"))

    @property
    def pages_copied(self) -> int:
        """The size of the copy so far."""
        size = self.partial.stat().st_size if self.partial.exists() else 0
        return size // int(self._connection.pragma("page_size"))

    def copy(self) -> None:
        """Write the partial file, and wait until it is on disk. Blocks; `stop` ends it from another thread."""
        self.partial.unlink(missing_ok=True)
        try:
            run_with_typed_errors(
                self._path,
                lambda c: c.execute("VACUUM INTO ?", (str(self.partial),)),
                self._connection,
            )
        except (apsw.FullError, apsw.CantOpenError, apsw.ReadOnlyError) as error:
            raise StoreUnavailable(
                f"{self.partial} can't be written ({error})", "free space, or pass another path"
            ) from error
        _sync(self.partial)

    def stop(self) -> None:
        self._connection.interrupt()

    def publish(self) -> None:
        """Give the copy its name. Refuses to replace a file that appeared meanwhile."""
        try:
            os.link(self.partial, self._to)
        except FileExistsError:
            raise InputError(f"{self._to} exists", "pass the path of a new file") from None
        self.partial.unlink()
        _sync(self._to.parent)

    def close(self) -> None:
        """Close the connection, and remove a partial copy with the files that checking it made."""
        self._connection.close()
        for suffix in ("", "-wal", "-shm", "-journal"):
            self.partial.with_name(self.partial.name + suffix).unlink(missing_ok=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
