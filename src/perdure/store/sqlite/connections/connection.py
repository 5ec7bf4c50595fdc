"""A SQLite connection, and the native writer that commits groups on it where that module is compiled."""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import apsw

from perdure.store.commit.group import Group
from perdure.store.commit.row_values import (
    created_rows,
    forwarded_rows,
    handed_rows,
    message_rows,
    parked_step_rows,
    published_again_rows,
    publishing,
    unparked_step_rows,
    work_rows,
)
from perdure.store.sqlite.connections.bulk_statements import GroupStatement, one_row
from perdure.store.sqlite.graph_writing import index_statements
from perdure.store.statements import statements

if TYPE_CHECKING:
    from perdure.store.sqlite import _native

compiled: ModuleType | None = None
"""The native module. Where it is not compiled, groups are written statement by statement."""
with suppress(ImportError):
    compiled = import_module("perdure.store.sqlite._native")

log = logging.getLogger("perdure.store")

BUSY_MS = 10_000

MAX_WAL_PAGES = 4000
"""Length of the write-ahead log from which the writer checkpoints it."""

ENTRY_POINT = "sqlite3_perdure_init"

WIDTHS: Final = {
    "create_runs": 18,
    "enrol_runs": 6,
    "advance_runs": 8,
    "publish": 4,
    "publish_by": 6,
    "publish_again": 6,
    "finish_work": 3,
    "close_runs": 2,
    "park_runs": 2,
    "blame_runs": 2,
    "append_events": 7,
    "post": 3,
    "enqueue": 8,
    "forward": 4,
    "forget": 4,
    "acknowledge": 2,
    "mark": 4,
    "drop_work": 2,
    "put_work": 7,
    "hold_work": 2,
    "unpark_steps": 2,
    "park_steps": 5,
    "clear_runs": 1,
    "empty_runs": 1,
    "clear_steps": 2,
    "empty_steps": 2,
    "track": 4,
    "deliver": 6,
    "unhook_runs": 1,
    "unhook_steps": 2,
    "take_hooks": 4,
    "hook": 7,
    "broadcast": 6,
    "scrub": 1,
    "hand_over_keys": 2,
}
"""The statements of groups, and how many values a row of each has."""

_NUMBERS: Final = {name: number for number, name in enumerate(WIDTHS)}
_ANY_COUNT: Final = -1


class Connection(apsw.Connection):
    """Belongs to one thread at a time. Without the native module, its methods do nothing and return false."""

    _native: "_native.NativeWriter | None" = None
    _wal_pages = 0

    def begin_writing(self, socket: int = -1) -> None:
        """Prepare the statements of groups. The end of each submitted group is reported by a byte on the `socket`.

        Turns off SQLite's automatic checkpoints, because a connection has only one hook for the write-ahead log.
        """
        self._native = _native_writer(self, socket)
        if self._native is None:
            self.set_wal_hook(self._wal_grew)

    @property
    def is_native(self) -> bool:
        return self._native is not None

    def write(self, statements: Sequence[GroupStatement]) -> bool:
        """Commit all statements in this thread, in one native call, or change nothing.

        False if they were not committed for any reason, a lock held by another process included.
        """
        return self._native is not None and self._native.write(_numbered(statements))

    def submit(self, statements: Sequence[GroupStatement]) -> bool:
        """Let the serving thread commit the statements; it waits for locks. False if it can't."""
        return self._native is not None and self._native.submit(_numbered(statements))

    def take_result(self) -> bool:
        """Whether the submitted group was committed, after the socket reported its end."""
        return self._native is not None and self._native.take_result()

    def serve(self) -> None:
        """Execute submitted groups, without the interpreter's lock, until `stop_serving`."""
        if self._native is not None:
            self._native.serve()

    def stop_serving(self) -> None:
        """Make `serve` return, because its thread has another job."""
        if self._native is not None:
            self._native.stop_serving()

    @property
    def is_checkpointing(self) -> bool:
        """Whether the serving thread runs a checkpoint: no other thread may use the connection meanwhile."""
        return self._native is not None and self._native.is_checkpointing

    @property
    def wal_is_long(self) -> bool:
        pages = self._wal_pages if self._native is None else self._native.wal_pages
        return pages >= MAX_WAL_PAGES

    def checkpoint_wal(self) -> None:
        """Copy the pages of the write-ahead log into the database, as far as readers allow.

        A checkpoint that fails loses nothing: the log stays, and the next checkpoint copies it.
        """
        if self._native is not None:
            self._native.checkpoint_wal()
            return
        self._wal_pages = 0
        with suppress(apsw.Error):
            self.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)

    def _wal_grew(self, _: apsw.Connection, __: str, pages: int) -> int:
        self._wal_pages = pages
        return int(apsw.SQLITE_OK)

    def close(self, force: bool = False) -> None:
        if self._native is not None:
            self._native.close()
        super().close(force)


def group_statements(group: Group) -> list[GroupStatement]:
    """The statements of a group, in order, without those for chunks: their positions depend on stored rows."""
    tables = _BOOKS if group.is_steps_only else _TABLES
    statements = []
    for name, (part, rows_of, is_counted) in tables.items():
        written = getattr(group, part)
        if written and (rows := rows_of(group)):
            statements.append(GroupStatement(name, rows, len(written) if is_counted else None))
    if group.index:
        statements += [each for each in index_statements(group.index) if each.rows]
    return statements


def _published(statement: str) -> Callable[[Group], list[Any]]:
    def rows_of(group: Group) -> list[Any]:
        name, rows = publishing(group)
        return rows if name == statement else []

    return rows_of


_TABLES: Final[dict[str, tuple[str, Callable[[Group], list[Any]], bool]]] = {
    "hand_over_keys": ("created", handed_rows, False),
    "create_runs": ("created", created_rows, True),
    "enrol_runs": ("enrolled", lambda group: group.enrolled, False),
    "advance_runs": ("heads", Group.head_rows, True),
    "publish_again": ("published_again", published_again_rows, False),
    "publish": ("published", _published("publish"), False),
    "publish_by": ("published", _published("publish_by"), False),
    "finish_work": ("finished", lambda group: group.finished, True),
    "close_runs": ("heads", Group.closed_rows, False),
    "park_runs": ("parked", lambda group: list(group.parked.items()), False),
    "blame_runs": ("blamed", lambda group: list(group.blamed.items()), False),
    "append_events": ("event_rows", lambda group: group.event_rows, False),
    "post": ("postings", Group.posting_rows, False),
    "enqueue": ("messages", message_rows, False),
    "forward": ("forwarded", forwarded_rows, False),
    "forget": ("forwarded", forwarded_rows, False),
    "acknowledge": ("acknowledged", lambda group: group.acknowledged, False),
    "mark": ("marked", lambda group: group.marked, False),
    "drop_work": ("dropped", lambda group: list(group.dropped), False),
    "put_work": ("work", work_rows, False),
    "hold_work": ("held", lambda group: list(group.held.items()), False),
    "unpark_steps": ("parked_steps", unparked_step_rows, False),
    "park_steps": ("parked_steps", parked_step_rows, False),
}
"""By statement, in order: the part of a group that it writes, the rows, and whether it must change one row for each."""

_BOOKS: Final = {
    name: _TABLES[name] for name in ("advance_runs", "close_runs", "append_events", "post")
}


def _numbered(statements: Sequence[GroupStatement]) -> list[tuple[int, list[Any], int]]:
    return [
        (_NUMBERS[name], rows, _ANY_COUNT if expected is None else expected)
        for name, rows, expected in statements
    ]


def _native_writer(connection: Connection, socket: int) -> "_native.NativeWriter | None":
    module = load_compiled(connection)
    if module is None:
        return None
    sql = statements("sqlite") | statements("sqlite_graphs")
    texts = tuple(one_row(sql[name], width) for name, width in WIDTHS.items())
    pointer = connection.sqlite3_pointer()
    writer: _native.NativeWriter = module.NativeWriter(
        pointer, BUSY_MS, MAX_WAL_PAGES, socket, texts
    )
    return writer


def load_compiled(connection: apsw.Connection) -> ModuleType | None:
    """The native module, loaded into this connection's SQLite; `None` if it is missing or can't be loaded."""
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
    return compiled
