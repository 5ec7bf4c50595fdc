"""Is another SQLite library using this file in this process?

POSIX drops all of a process's locks on a file when *any* of its descriptors is closed. One SQLite
library knows of its own descriptors and works around that; two of them (apsw's, and the standard
library's) do not know of each other, and data is lost without an error. So a descriptor on the file
that is not ours is refused.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

from perdure.core.errors import ForeignSqlite

_DESCRIPTORS = Path("/dev/fd")


class Descriptors:
    """The descriptors that our own connections hold, by file. One per process."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._ours: dict[tuple[int, int], set[int]] = {}

    @contextmanager
    def opening(self, path: Path) -> Iterator[None]:
        """Refuse a file that something else in this process has open; what is opened here is ours.

        The lock is held throughout: two threads that open one file at once must not take each other's
        descriptors for a stranger's.
        """
        with self._lock:
            before = self._require_ours(path)
            yield
            identity = _identity(path)
            if identity is not None:
                self._ours.setdefault(identity, set()).update(_open_on(identity) - before)

    def require_ours(self, path: Path) -> None:
        """Refuse a file that something else in this process has open."""
        with self._lock:
            self._require_ours(path)

    def forget_closed(self) -> None:
        """After closing a connection: its descriptor's number may be a stranger's next."""
        with self._lock:
            held = {identity: ours & _open_on(identity) for identity, ours in self._ours.items()}
            self._ours = {identity: ours for identity, ours in held.items() if ours}

    def _require_ours(self, path: Path) -> set[int]:
        identity = _identity(path)
        held = set() if identity is None else _open_on(identity)
        strangers = held - self._ours.get(identity, set()) if identity else set()
        if strangers:
            raise ForeignSqlite(
                f"{path} is open in this process by something other than Perdure (descriptors "
                f"{sorted(strangers)})",
                "two SQLite libraries on one file lose data: close the other, and write beside "
                "a run through the store's own transactions",
            )
        return held


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        # Not there, or out of reach: SQLite will say so when it opens the file.
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
