"""One side of a move: a SQLite store."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import apsw

from perdure.core.ids import HostId
from perdure.store.rows.moving import (
    FROZEN,
    KEY,
    LEFT_BEHIND,
    DeadHosts,
    MovedTable,
    MoveMark,
    Row,
    mark_text,
    read_mark,
    require_mark,
)
from perdure.store.schema import MOVED, migrations
from perdure.store.sqlite.connections.opening import connect_to_file
from perdure.store.sqlite.writing import in_transaction

T = TypeVar("T")
_PREFIX = "perdure_"
_SUFFIX = "_frozen"


class MovableSqlite:
    """A connection of its own, used in other threads, one job at a time."""

    def __init__(self, path: str) -> None:
        self.name = f"sqlite:///{path}"
        self._connection = connect_to_file(path)
        self._turn = asyncio.Lock()

    async def mark(self) -> MoveMark | None:
        return await self._run(_mark)

    async def tables(self) -> list[MovedTable]:
        return await self._run(_tables)

    async def count(self, table: MovedTable) -> int:
        def job(connection: apsw.Connection) -> int:
            return int(
                cast(
                    "int",
                    connection.execute(
                        f"SELECT count(*) FROM {_stored(connection, table.name)}"
                    ).get,
                )
            )

        return await self._run(job)

    async def read(self, table: MovedTable, after: Row, limit: int) -> list[Row]:
        key = ", ".join(table.key)
        where = f"WHERE ({key}) > ({', '.join('?' * len(after))})" if after else ""

        def job(connection: apsw.Connection) -> list[Row]:
            stored = _stored(connection, table.name)
            columns = ", ".join(table.columns)
            sql = f"SELECT {columns} FROM {stored} {where} ORDER BY {key} LIMIT {limit}"
            return connection.execute(sql, after).fetchall()

        return await self._run(job)

    async def write(
        self, table: MovedTable, rows: Sequence[Row], before: MoveMark, after: MoveMark
    ) -> None:
        columns, holes = ", ".join(table.columns), ", ".join("?" * len(table.columns))
        sql = f"INSERT INTO {_PREFIX}{table.name} ({columns}) VALUES ({holes})"

        def job(connection: apsw.Connection) -> None:
            require_mark(_mark(connection), before, self.name)
            connection.executemany(sql, rows)
            _put(connection, KEY, mark_text(after))

        await self._change(job)

    async def freeze(self, mark: MoveMark, dead: DeadHosts) -> None:
        def job(connection: apsw.Connection) -> None:
            hosts = connection.execute(f"SELECT id, beat FROM {_PREFIX}host").fetchall()
            dead.require(dict(cast("list[tuple[HostId, int]]", hosts)), self.name)
            connection.execute(
                "UPDATE perdure_run SET owner = NULL, epoch = epoch + 1"
                " WHERE closed_at_ms IS NULL AND epoch IS NOT 0 AND owner IS NOT NULL"
            )
            connection.execute(
                "UPDATE perdure_work SET token = NULL, host = NULL, available_at_ms = ?"
                " WHERE host IS NOT NULL",
                (dead.now_ms,),
            )
            connection.execute("DELETE FROM perdure_host")
            for name in FROZEN:
                connection.execute(
                    f"ALTER TABLE {_PREFIX}{name} RENAME TO {_PREFIX}{name}{_SUFFIX}"
                )
            _close(connection, mark, is_closed=True)

        await self._change(job)

    async def thaw(self) -> None:
        def job(connection: apsw.Connection) -> None:
            for name in FROZEN:
                connection.execute(
                    f"ALTER TABLE {_PREFIX}{name}{_SUFFIX} RENAME TO {_PREFIX}{name}"
                )
            connection.execute("DELETE FROM perdure_meta WHERE key = ?", (KEY,))
            _put(connection, "schema_version", str(len(migrations("sqlite"))))

        await self._change(job)

    async def set_mark(self, mark: MoveMark, *, is_closed: bool) -> None:
        await self._change(lambda c: _close(c, mark, is_closed=is_closed))

    async def close(self) -> None:
        async with self._turn:
            self._connection.close()

    async def _change(self, job: Callable[[apsw.Connection], T]) -> T:
        return await self._run(lambda c: in_transaction(c, lambda: job(c)))

    async def _run(self, job: Callable[[apsw.Connection], T]) -> T:
        async with self._turn:
            return await asyncio.to_thread(job, self._connection)


def _mark(connection: apsw.Connection) -> MoveMark | None:
    text: Any = connection.execute("SELECT value FROM perdure_meta WHERE key = ?", (KEY,)).get
    return read_mark(text)


def _close(connection: apsw.Connection, mark: MoveMark, *, is_closed: bool) -> None:
    _put(connection, KEY, mark_text(mark))
    _put(connection, "schema_version", str(len(migrations("sqlite")) + is_closed * MOVED))


def _put(connection: apsw.Connection, key: str, value: str) -> None:
    connection.execute(
        "INSERT INTO perdure_meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        (key, value),
    )


def _tables(connection: apsw.Connection) -> list[MovedTable]:
    names: list[Any] = connection.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name LIKE 'perdure\\_%' ESCAPE '\\'"
    ).fetchall()
    found = []
    for (stored,) in names:
        name = stored.removeprefix(_PREFIX).removesuffix(_SUFFIX)
        if name in LEFT_BEHIND:
            continue
        info: list[Any] = connection.execute(
            "SELECT name, pk FROM pragma_table_info(?)", (stored,)
        ).fetchall()
        keys = sorted((position, column) for column, position in info if position)
        found.append(
            MovedTable(
                name, tuple(sorted(column for column, _ in info)), tuple(key for _, key in keys)
            )
        )
    return sorted(found, key=lambda table: table.name)


def _stored(connection: apsw.Connection, name: str) -> str:
    """The table's name now: a frozen one has another."""
    frozen = f"{_PREFIX}{name}{_SUFFIX}"
    is_frozen = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (frozen,)).get
    return frozen if is_frozen else f"{_PREFIX}{name}"
