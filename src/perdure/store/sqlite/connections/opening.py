"""Opens a SQLite file: durable settings, retries while it is locked, and the schema."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import apsw

from perdure.core.errors import NotOurDatabase, StoreUnavailable
from perdure.store.process import never_free_in_child
from perdure.store.schema import known_version, migrations, no_store, require_newest, strange_tables
from perdure.store.sqlite.connections.connection import BUSY_MS, Connection
from perdure.store.sqlite.connections.damage import damaged
from perdure.store.sqlite.connections.foreign import descriptors

MEMORY = ":memory:"
T = TypeVar("T")

_STATEMENTS = 512


def connect_to_file(path: str) -> Connection:
    """Open a connection that waits for locks and makes each commit durable."""
    return _open(path, _configure)


def connect_first(
    path: str, *, adopt: bool = False, as_it_is: bool = False, is_moving: bool = False
) -> Connection:
    """Open the first connection, and migrate the schema; with `as_it_is`, refuse a file that needs a migration.

    With `is_moving`, the version is not looked at: that of a store that is being moved keeps engines out.
    """

    def prepare(connection: apsw.Connection) -> None:
        if path == MEMORY:
            _copy_empty_store(connection)
            _configure(connection)
            return
        if is_moving:
            _configure(connection)
            return
        # The settings are written into the file, so first check that it is Perdure's.
        version = _version(connection, path, adopt=adopt)
        if as_it_is:
            require_newest(path, version, "sqlite")
        _configure(connection)
        migrate(connection, path, adopt=adopt)

    if as_it_is and (path == MEMORY or not Path(path).exists()):
        raise no_store(path)
    return _open(path, prepare)


def _open(path: str, prepare: Callable[[apsw.Connection], None]) -> Connection:
    with _typed_errors(path):
        with descriptors.opening(Path(path)) if path != MEMORY else nullcontext():
            connection = Connection(path, statementcachesize=_STATEMENTS)
            never_free_in_child(connection)
        try:
            connection.set_busy_timeout(BUSY_MS)
            prepare(connection)
        except BaseException:
            connection.close()
            descriptors.forget_closed()
            raise
        return connection


@contextmanager
def _typed_errors(path: str) -> Iterator[None]:
    try:
        yield
    except apsw.NotADBError as error:
        raise NotOurDatabase(
            f"{path} is not a SQLite database", "use a new file, or the right one"
        ) from error
    except apsw.CorruptError as error:
        raise damaged(path, error) from error
    except apsw.SQLError as error:
        raise strange_tables(path, error) from error
    except (
        apsw.CantOpenError,
        apsw.FullError,
        apsw.IOError,
        apsw.PermissionsError,
        apsw.ReadOnlyError,
    ) as error:
        raise StoreUnavailable(
            f"{path} can't be opened for writing ({error})",
            "use a file in a directory that exists and that this user may write to",
        ) from error


def _configure(connection: apsw.Connection) -> None:
    # WAL: readers don't wait for the writer. FULL: a commit that returned survives a power cut.
    retry_while_locked(lambda: connection.execute("PRAGMA journal_mode = WAL"))
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA cache_size = -16384")
    # For users' tables. Perdure's have no foreign keys, so it costs them nothing.
    connection.execute("PRAGMA foreign_keys = ON")


def retry_while_locked(attempt: Callable[[], T]) -> T:
    """Retry until the file is not locked: another process's lock delays a run but never fails it.

    SQLite raises `BusyError` only after its own busy timeout, so this loop does not spin.
    """
    while True:
        try:
            return attempt()
        except (apsw.BusyError, apsw.LockedError):
            time.sleep(0.01)


@cache
def _empty_store() -> bytes:
    """A migrated store without rows, serialized."""
    with closing(apsw.Connection(MEMORY)) as connection:
        migrate(connection, MEMORY, adopt=False)
        return connection.serialize("main")


def _copy_empty_store(connection: apsw.Connection) -> None:
    """Give a new database in memory the schema. Copying takes a tenth of the CPU time of all migrations."""
    with closing(apsw.Connection(MEMORY)) as template:
        # Deserialized here and not in `connection`: a deserialized database has a maximum size.
        template.deserialize("main", _empty_store())
        with connection.backup("main", template, "main") as copy:
            copy.step()


def migrate(connection: apsw.Connection, path: str, *, adopt: bool) -> None:
    """Migrate the schema, under the file's write lock."""
    scripts = migrations("sqlite")
    version = _version(connection, path, adopt=adopt)
    if version == len(scripts):
        return
    retry_while_locked(lambda: connection.execute("BEGIN IMMEDIATE"))
    try:
        version = _version(connection, path, adopt=adopt)
        connection.execute(
            "CREATE TABLE IF NOT EXISTS perdure_meta"
            " (key TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID"
        )
        for script in scripts[version:]:
            connection.execute(script)
        connection.execute(
            "INSERT INTO perdure_meta VALUES ('schema_version', ?)"
            " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            (str(len(scripts)),),
        )
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _version(connection: apsw.Connection, path: str, *, adopt: bool) -> int:
    """The file's schema version; 0 if it has no tables of Perdure's."""
    tables = {
        cast("str", name)
        for (name,) in retry_while_locked(
            lambda: connection.execute(
                "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
            ).fetchall()
        )
    }
    if "perdure_meta" not in tables:
        _require_room(path, tables, adopt=adopt)
        return 0
    value: Any = connection.execute(
        "SELECT value FROM perdure_meta WHERE key = 'schema_version'"
    ).get
    return known_version(path, value, "sqlite")


def _require_room(path: str, tables: set[str], *, adopt: bool) -> None:
    ours = sorted(name for name in tables if name.startswith("perdure_"))
    if ours:
        raise NotOurDatabase(
            f"{path} has tables named {', '.join(ours)} that Perdure did not create",
            "rename them, or use another file",
        )
    if tables and not adopt:
        raise NotOurDatabase(
            f"{path} belongs to another program (it has the table {min(tables)!r})",
            "use a new file, or add '?adopt=true' to the URL to keep Perdure's tables beside them",
        )
