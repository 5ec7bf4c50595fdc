"""Refuses other users of a store's file in the same process.

Two SQLite libraries in one process don't see each other's descriptors, and POSIX locks of one are lost when the other
closes the file (see `locks.py`). Perdure's own locks survive that where the system supports it. The other library's
don't: its writes while Perdure closes a connection are unprotected. So a second library is refused in any case:

- An audit hook refuses `sqlite3.connect` to the file of an open store, in the code that calls it: nothing is opened, so
  nothing is closed. SQLAlchemy, Django and aiosqlite connect this way.
- A descriptor that may write to the file and is not Perdure's is refused when a store is opened, and checked for while
  the store is used: this finds libraries that raise no audit event, and connections that are older than the store.
- Where Perdure's locks belong to the process, a descriptor that only reads is refused too, and the hook refuses `open`
  and `os.open` of the database and its -shm file. A copy for a backup then needs another process, or a closed store.

An audit hook can't be removed, so there is one per process, which compares with the files of the open stores. The
interpreter raises audit events in operations as cheap as `id`, several in every step, so the hook is native where that
is compiled, and calls Python only for the events above.

SQLite also keeps its locks of a file in memory, and a forked child inherits that memory. A connection that the child
opens on the same file would treat the parent's locks as its own, so the child is refused too.
"""

import fcntl
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import unquote, urlsplit

from perdure.core.errors import ForeignSqlite, UsedAfterFork
from perdure.store.sqlite.connections.connection import compiled
from perdure.store.sqlite.connections.locks import own_locks

_DESCRIPTORS = Path("/dev/fd")
_CONNECT, _CONNECTED, _OPEN = "sqlite3.connect", "sqlite3.connect/handle", "open"
_WATCHED = (_CONNECT, _CONNECTED, _OPEN)

Identity = tuple[int, int]
"""A file, by its device and inode."""


class Descriptors:
    """The descriptors that Perdure's connections hold, by file. One per process."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._ours: dict[Identity, set[int]] = {}
        self._exposed: dict[Identity, Path] = {}
        """Databases whose locks belong to the process."""
        self._connecting = threading.local()
        self._is_hooked = False
        self._inherited: set[Identity] = set()
        """Files that the parent of this process had open when it forked."""

    @contextmanager
    def opening(self, path: Path) -> Iterator[None]:
        """Refuse a file that other code in this process has open; descriptors opened inside are Perdure's.

        Holds the lock throughout: two threads that open one file at once must not mistake each other's descriptors for
        foreign ones.
        """
        with self._lock:
            self._hook()
            known = identity_of(path)
            if known is not None:
                # Before the descriptors are listed: a library that connects meanwhile is either listed or refused.
                self._ours.setdefault(known, set())
            try:
                is_own = own_locks(str(path))
                before = self._require_ours(path, is_own=is_own)
                yield
                self._take(path, before, is_own=is_own)
            finally:
                if known is not None and not self._ours[known]:
                    del self._ours[known]

    def _take(self, path: Path, before: set[int], *, is_own: bool) -> None:
        identity = identity_of(path)
        if identity is not None:
            self._ours.setdefault(identity, set()).update(_open_on(identity) - before)
            if not is_own:
                self._exposed[identity] = path

    def require_ours(self, path: Path) -> None:
        """Refuse a file that other code in this process has open."""
        with self._lock:
            self._require_ours(path, is_own=identity_of(path) not in self._exposed)

    def forget_closed(self) -> None:
        """Call after closing a connection: other code may get its descriptor's number next."""
        with self._lock:
            held = {identity: ours & _open_on(identity) for identity, ours in self._ours.items()}
            self._ours = {identity: ours for identity, ours in held.items() if ours}
            self._exposed = {
                identity: path for identity, path in self._exposed.items() if identity in self._ours
            }

    def inherit(self) -> None:
        """In a forked child: the files are the parent's. Replaces the lock, which a parent's thread may have held."""
        self._lock = Lock()
        self._inherited.update(identity for identity, ours in self._ours.items() if ours)

    def _require_ours(self, path: Path, *, is_own: bool) -> set[int]:
        identity = identity_of(path)
        if identity is None:
            return set()
        if identity in self._inherited:
            raise UsedAfterFork(
                f"{path} was open in the process that forked this one ({os.getpid()}), and SQLite can't lock a "
                "file again that it inherited",
                "open the engine or ledger after the fork only, in no process before it; or start this process "
                "without a fork (multiprocessing: 'spawn')",
            )
        held = _open_on(identity)
        foreign = held - self._ours.get(identity, set())
        if is_own:
            foreign = set(filter(_may_write, foreign))
        if foreign:
            raise ForeignSqlite(
                f"{path} is open in this process by something other than Perdure (descriptors "
                f"{sorted(foreign)})",
                "two SQLite libraries on one file lose data: close the other, and write beside "
                "a run through the store's own transactions",
            )
        return held

    def _hook(self) -> None:
        if not self._is_hooked:
            self._is_hooked = True
            # An editable install may still have the module that was compiled from older sources.
            watch = getattr(compiled, "watch_events", None)
            if watch is None:
                sys.addaudithook(EventFilter(self._on_event))
            else:
                watch(_WATCHED, self._on_event)

    def _on_event(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Takes no lock, because the thread that raises the event may hold it. Each lookup in a table is atomic."""
        if event == _OPEN:
            if self._exposed:
                self._refuse_file(arguments[0])
        elif event == _CONNECT:
            self._connecting.path = path = _database(arguments[0])
            self._refuse_library(path)
        else:
            # Between the two events a store may have been opened that found no descriptor yet.
            self._refuse_library(getattr(self._connecting, "path", None))

    def _refuse_library(self, path: Path | None) -> None:
        if path is not None and identity_of(path) in self._ours:
            raise ForeignSqlite(
                f"{path} is a store that this process has open with Perdure, and can't be opened with sqlite3 too",
                "use the engine's own transactions for your tables (docs/how-to/transactions.md), another process, "
                "or another file: two SQLite libraries in one process lose data",
            )

    def _refuse_file(self, opened: object) -> None:
        path = _path(opened)
        if path is None:
            return
        database = path.with_name(path.name.removesuffix("-shm"))
        if identity_of(path) in self._exposed or (
            database != path and identity_of(database) in self._exposed
        ):
            raise ForeignSqlite(
                f"{path} belongs to a store that this process has open: if it were closed again, SQLite would "
                "lose its locks",
                "copy or read it from another process, or while the store is closed",
            )


class EventFilter:
    """An audit hook that passes on the watched events."""

    __cantrace__ = False
    """The interpreter reads this at every event. Without it, it would make an AttributeError and drop it."""

    def __init__(self, on_event: Callable[[str, tuple[Any, ...]], None]) -> None:
        self._on_event = on_event

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in _WATCHED:
            self._on_event(event, arguments)


def _database(given: object) -> Path | None:
    """The file that `sqlite3.connect` would open, as far as it is one."""
    path = _path(given)
    if path is not None and str(path).startswith("file:"):
        return Path(unquote(urlsplit(str(given)).path))
    return path


def _path(given: object) -> Path | None:
    if not isinstance(given, str | bytes | os.PathLike):
        return None
    return Path(os.fsdecode(given))


def identity_of(path: Path) -> Identity | None:
    try:
        status = path.stat()
    except (OSError, ValueError):
        # Missing, not permitted, or not a path: SQLite reports it when it opens the file.
        return None
    return status.st_dev, status.st_ino


def _open_on(identity: Identity) -> set[int]:
    found = set()
    for name in os.listdir(_DESCRIPTORS):
        try:
            status = os.fstat(int(name))
        except OSError:
            # The descriptor of the directory listing itself, closed by now.
            continue
        if (status.st_dev, status.st_ino) == identity:
            found.add(int(name))
    return found


def _may_write(descriptor: int) -> bool:
    try:
        return fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY
    except OSError:
        # Closed meanwhile.
        return False


descriptors = Descriptors()
os.register_at_fork(after_in_child=descriptors.inherit)
