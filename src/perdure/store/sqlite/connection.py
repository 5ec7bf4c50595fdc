"""A connection, and the quick way to commit on it, where that was compiled."""

import logging
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import apsw

from perdure.store.sqlite.rows import one_row
from perdure.store.statements import statements

if TYPE_CHECKING:
    from perdure.store.sqlite import _quick

compiled: ModuleType | None = None
"""The module of the quick way. Where it was not compiled, statements are executed one by one."""
with suppress(ImportError):
    compiled = import_module("perdure.store.sqlite._quick")

log = logging.getLogger("perdure.store")

BUSY_MS = 10_000

LOG_PAGES = 4000
"""Length of the log from which it is folded back."""

ENTRY_POINT = "sqlite3_perdure_init"

WIDTHS: Final = {
    "create_runs": 15,
    "advance_runs": 8,
    "publish": 4,
    "publish_by": 6,
    "finish_work": 3,
    "close_runs": 2,
    "park_runs": 2,
    "append_events": 7,
    "post": 3,
    "enqueue": 7,
    "forward": 4,
    "forget": 4,
    "acknowledge": 2,
    "mark": 4,
    "drop_work": 2,
    "put_work": 7,
    "clear_runs": 1,
    "empty_runs": 1,
    "clear_steps": 2,
    "empty_steps": 2,
    "track": 4,
    "deliver": 6,
    "unhook_runs": 1,
    "unhook_steps": 2,
    "hook": 7,
    "broadcast": 5,
    "scrub": 1,
}
"""The statements that groups are made of, and how many values a row of each has."""

_NUMBERS: Final = {name: number for number, name in enumerate(WIDTHS)}
_ANY_COUNT: Final = -1


class Part(NamedTuple):
    """A statement of a group, by its name, and its rows."""

    name: str
    rows: list[Any]
    expected: int | None = None
    """How many rows it must change, if that tells whether the group fits."""


class Connection(apsw.Connection):
    """Belongs to one thread at a time. Without a quick way, whatever is asked of that is not done."""

    _quick: "_quick.Quick | None" = None
    _log_pages = 0

    def begin_writing(self, socket: int = -1) -> None:
        """Prepare what groups need; a byte to the `socket` tells that one is through. SQLite's own automatic fold of
        the log ends."""
        self._quick = _quick_way(self, socket)
        if self._quick is None:
            self.set_wal_hook(self._log_grew)

    @property
    def is_quick(self) -> bool:
        return self._quick is not None

    def write(self, parts: Sequence[Part]) -> bool:
        """Commit all the parts here and now, in one call, or change nothing.

        False if that did not come about, for whatever reason: also if another process has the file's lock.
        """
        return self._quick is not None and self._quick.write(_numbered(parts))

    def submit(self, parts: Sequence[Part]) -> bool:
        """Let the thread that serves, or will, do so, and wait for locks. False if it can't."""
        return self._quick is not None and self._quick.submit(_numbered(parts))

    def take(self) -> bool:
        """Whether the job has come about that the socket tells of."""
        return self._quick is not None and self._quick.take()

    def serve(self) -> None:
        """Do jobs, without the interpreter's lock, until somebody calls `want`."""
        if self._quick is not None:
            self._quick.serve()

    def want(self) -> None:
        """The thread that serves has something else to do."""
        if self._quick is not None:
            self._quick.want()

    @property
    def is_folding(self) -> bool:
        """Whether the thread that serves folds the log back: nobody else may use the connection meanwhile."""
        return self._quick is not None and self._quick.is_folding

    @property
    def log_is_long(self) -> bool:
        return (self._log_pages if self._quick is None else self._quick.log_pages) >= LOG_PAGES

    def fold_log(self) -> None:
        """Move the log's pages into the database, as far as readers allow.

        A fold that fails loses nothing: the log is still there, and is folded when it has grown.
        """
        if self._quick is not None:
            self._quick.fold_log()
            return
        self._log_pages = 0
        with suppress(apsw.Error):
            self.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)

    def _log_grew(self, _: apsw.Connection, __: str, pages: int) -> int:
        self._log_pages = pages
        return int(apsw.SQLITE_OK)

    def close(self, force: bool = False) -> None:
        if self._quick is not None:
            self._quick.close()
        super().close(force)


def _numbered(parts: Sequence[Part]) -> list[tuple[int, list[Any], int]]:
    return [
        (_NUMBERS[name], rows, _ANY_COUNT if expected is None else expected)
        for name, rows, expected in parts
    ]


def _quick_way(connection: Connection, socket: int) -> "_quick.Quick | None":
    if compiled is None or compiled.__file__ is None:
        return None
    connection.enable_load_extension(True)
    try:
        connection.load_extension(compiled.__file__, ENTRY_POINT)
    except apsw.Error as error:
        log.warning(
            "groups are written statement by statement: SQLite loads no extension (%s)", error
        )
        return None
    finally:
        connection.enable_load_extension(False)
    sql = statements("sqlite") | statements("sqlite_graphs")
    texts = tuple(one_row(sql[name], width) for name, width in WIDTHS.items())
    pointer = connection.sqlite3_pointer()
    quick: _quick.Quick = compiled.Quick(pointer, BUSY_MS, LOG_PAGES, socket, texts)
    return quick
