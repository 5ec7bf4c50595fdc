"""One side of a move: a Postgres store."""

from collections.abc import Sequence
from typing import Any

import asyncpg

from perdure.core.errors import StoreUnavailable
from perdure.store.postgres.connections.opening import Address, close_connection, first_connection
from perdure.store.postgres.writing import Connection
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

_SUFFIX = "_frozen"
_LOCK_TIMEOUT = "30s"
"""How long freezing waits for transactions that are under way."""


class MovablePostgres:
    """A connection of its own."""

    def __init__(self, name: str, connection: Connection) -> None:
        self.name = name
        self._connection = connection
        self._texts: dict[tuple[str, str], bool] = {}
        """Whether each column holds text, which has a collation."""

    @classmethod
    async def open(cls, url: str) -> "MovablePostgres":
        async def prepare(connection: Connection) -> None:
            pass  # the caller has opened the store before

        address = Address(url)
        return cls(address.name, await first_connection(address, prepare))

    async def mark(self) -> MoveMark | None:
        return await self._mark(lock="")

    async def tables(self) -> list[MovedTable]:
        rows = await self._connection.fetch(
            "SELECT c.relname, a.attname, array_position(i.indkey::smallint[], a.attnum), a.attcollation <> 0"
            " FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace"
            " JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped"
            " LEFT JOIN pg_index AS i ON i.indrelid = c.oid AND i.indisprimary"
            " WHERE n.nspname = 'perdure' AND c.relkind IN ('r', 'p')"
        )
        columns: dict[str, dict[str, int | None]] = {}
        for stored, column, position, is_text in rows:
            name = stored.removesuffix(_SUFFIX)
            if name not in LEFT_BEHIND:
                columns.setdefault(name, {})[column] = position
                self._texts[name, column] = is_text
        return [
            MovedTable(
                name,
                tuple(sorted(found)),
                tuple(
                    sorted((c for c in found if found[c] is not None), key=lambda c: found[c] or 0)
                ),
            )
            for name, found in sorted(columns.items())
        ]

    async def count(self, table: MovedTable) -> int:
        stored = await self._stored(table.name)
        return int(await self._connection.fetchval(f"SELECT count(*) FROM {stored}"))

    async def read(self, table: MovedTable, after: Row, limit: int) -> list[Row]:
        keys = [self._ordered(table.name, name) for name in table.key]
        key = ", ".join(keys)
        holes = ", ".join(f"${number}" for number in range(1, len(after) + 1))
        where = f"WHERE ({key}) > ({holes})" if after else ""
        stored, columns = await self._stored(table.name), ", ".join(table.columns)
        sql = f"SELECT {columns} FROM {stored} {where} ORDER BY {key} LIMIT {limit}"
        return [tuple(row) for row in await self._connection.fetch(sql, *after)]

    async def write(
        self, table: MovedTable, rows: Sequence[Row], before: MoveMark, after: MoveMark
    ) -> None:
        async with self._connection.transaction():
            require_mark(await self._mark(lock="FOR UPDATE"), before, self.name)
            await self._connection.copy_records_to_table(
                table.name, schema_name="perdure", columns=table.columns, records=rows
            )
            await self._put(KEY, mark_text(after))

    async def freeze(self, mark: MoveMark, dead: DeadHosts) -> None:
        tables = [table.name for table in await self.tables()]
        locked = ", ".join(f"perdure.{name}" for name in [*tables, "host"])
        async with self._connection.transaction():
            await self._connection.execute(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'")
            try:
                await self._connection.execute(f"LOCK TABLE {locked} IN ACCESS EXCLUSIVE MODE")
            except asyncpg.LockNotAvailableError as error:
                raise StoreUnavailable(
                    f"{self.name} has transactions that do not end ({error})",
                    "end the programs that use it, and move it then",
                ) from None
            hosts = await self._connection.fetch("SELECT id, beat FROM perdure.host")
            dead.require(dict(hosts), self.name)
            await self._connection.execute(
                "UPDATE perdure.run SET owner = NULL, epoch = epoch + 1"
                " WHERE closed_at_ms IS NULL AND epoch IS DISTINCT FROM 0 AND owner IS NOT NULL"
            )
            await self._connection.execute(
                "UPDATE perdure.work SET token = NULL, host = NULL, available_at_ms = $1"
                " WHERE host IS NOT NULL",
                dead.now_ms,
            )
            await self._connection.execute("DELETE FROM perdure.host")
            for name in FROZEN:
                await self._connection.execute(
                    f"ALTER TABLE perdure.{name} RENAME TO {name}{_SUFFIX}"
                )
            await self._close(mark, is_closed=True)

    async def thaw(self) -> None:
        async with self._connection.transaction():
            for name in FROZEN:
                await self._connection.execute(
                    f"ALTER TABLE perdure.{name}{_SUFFIX} RENAME TO {name}"
                )
            await self._connection.execute("DELETE FROM perdure.meta WHERE key = $1", KEY)
            await self._put("schema_version", str(len(migrations("postgres"))))

    async def set_mark(self, mark: MoveMark, *, is_closed: bool) -> None:
        async with self._connection.transaction():
            await self._close(mark, is_closed=is_closed)

    async def close(self) -> None:
        await close_connection(self._connection)

    async def _close(self, mark: MoveMark, *, is_closed: bool) -> None:
        await self._put(KEY, mark_text(mark))
        await self._put("schema_version", str(len(migrations("postgres")) + is_closed * MOVED))

    async def _put(self, key: str, value: str) -> None:
        await self._connection.execute(
            "INSERT INTO perdure.meta VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            key,
            value,
        )

    async def _mark(self, lock: str) -> MoveMark | None:
        text: Any = await self._connection.fetchval(
            f"SELECT value FROM perdure.meta WHERE key = $1 {lock}",
            KEY,
        )
        return read_mark(text)

    def _ordered(self, table: str, column: str) -> str:
        """The column in the order of bytes, as SQLite orders text."""
        return f'{column} COLLATE "C"' if self._texts[table, column] else column

    async def _stored(self, name: str) -> str:
        """The table's name now: a frozen one has another."""
        frozen = f"perdure.{name}{_SUFFIX}"
        is_frozen = await self._connection.fetchval("SELECT to_regclass($1) IS NOT NULL", frozen)
        return frozen if is_frozen else f"perdure.{name}"
