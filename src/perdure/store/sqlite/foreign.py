"""Is another SQLite library using this file in this process?

POSIX drops all of a process's locks on a file when *any* of its descriptors is closed. One SQLite
library knows of its own descriptors and works around that; two of them (apsw's, and the standard
library's) do not know of each other, and data is lost without an error. So a descriptor on the file
that is not ours is refused.
"""

import os
from pathlib import Path
from threading import Lock

from perdure.core.errors import ForeignSqlite

_DESCRIPTORS = Path("/dev/fd")


class Descriptors:
    """The descriptors that our own connections hold, by file. One per process."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._ours: dict[tuple[int, int], set[int]] = {}

    def adopt(self, path: Path, before: set[int]) -> None:
        """What was opened since `before` is ours."""
        with self._lock:
            identity = _identity(path)
            if identity is not None:
                ours = self._ours.setdefault(identity, set())
                ours.update(_open_on(identity) - before)

    def open_on(self, path: Path) -> set[int]:
        identity = _identity(path)
        return set() if identity is None else _open_on(identity)

    def require_ours(self, path: Path) -> None:
        """Refuse a file that something else in this process has open."""
        with self._lock:
            identity = _identity(path)
            if identity is None:
                return
            held = _open_on(identity)
            ours = self._ours.get(identity, set())
            ours &= held
            if held - ours:
                raise ForeignSqlite(
                    f"{path} is open in this process by something other than Perdure (descriptors "
                    f"{sorted(held - ours)})",
                    "two SQLite libraries on one file lose data: close the other, and write beside "
                    "a run through the store's own transactions",
                )


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def _open_on(identity: tuple[int, int]) -> set[int]:
    found = set()
    for name in os.listdir(_DESCRIPTORS):
        try:
            status = os.fstat(int(name))
        except OSError:
            # The descriptor by which the directory itself was read.
            continue
        if (status.st_dev, status.st_ino) == identity:
            found.add(int(name))
    return found


descriptors = Descriptors()
