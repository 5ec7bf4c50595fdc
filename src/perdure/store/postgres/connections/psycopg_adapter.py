"""A psycopg connection with the methods of asyncpg's that the store uses.

So the store executes the same statements and handles the same errors with either driver. Imported only if the user's
process has imported psycopg.
"""

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import asyncpg
import psycopg
from psycopg import AsyncRawCursor, sql
from psycopg.pq import TransactionStatus

_SAVEPOINTS = count(1)


class _Row(tuple[Any, ...]):
    """A row by position and by column name, as asyncpg's records are."""

    columns: Sequence[str]

    def keys(self) -> Iterator[str]:
        return iter(self.columns)

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(self.columns.index(key) if isinstance(key, str) else key)


class _Savepoint:
    """A savepoint of the user's transaction; asyncpg calls it a nested transaction."""

    def __init__(self, adapter: "PsycopgAdapter") -> None:
        self._adapter = adapter
        self._name = f"perdure_{next(_SAVEPOINTS)}"

    async def start(self) -> None:
        await self._adapter.execute(f"SAVEPOINT {self._name}")

    async def commit(self) -> None:
        await self._adapter.execute(f"RELEASE SAVEPOINT {self._name}")

    async def rollback(self) -> None:
        await self._adapter.execute(f"ROLLBACK TO SAVEPOINT {self._name}")
        await self._adapter.execute(f"RELEASE SAVEPOINT {self._name}")


class _Prepared:
    """A statement sent by the extended protocol, where the server refuses two statements in one text."""

    def __init__(self, adapter: "PsycopgAdapter", statement: str) -> None:
        self._adapter = adapter
        self._statement = statement
        self._status = ""

    async def fetch(self) -> list[_Row]:
        async with self._adapter.executed(self._statement, ()) as cursor:
            self._status = cursor.statusmessage or ""
            return await _rows(cursor)

    def get_statusmsg(self) -> str:
        return self._status


class PsycopgAdapter:
    """Raises asyncpg's errors, chosen by the server's SQLSTATE."""

    def __init__(self, connection: "psycopg.AsyncConnection[Any]") -> None:
        self._connection = connection

    @asynccontextmanager
    async def executed(
        self, statement: str, args: Sequence[Any]
    ) -> AsyncIterator["AsyncRawCursor[Any]"]:
        """A cursor on which one statement was executed."""
        try:
            # Binary makes psycopg use the extended protocol, which takes one statement at a time.
            async with AsyncRawCursor(self._connection) as cursor:
                await cursor.execute(statement.encode(), args, binary=True)
                yield cursor
        except psycopg.Error as error:
            raise _translated(error) from error

    async def execute(self, statement: str, *args: Any) -> str:
        async with self.executed(statement, args) as cursor:
            return cursor.statusmessage or ""

    async def fetch(self, statement: str, *args: Any) -> list[_Row]:
        async with self.executed(statement, args) as cursor:
            return await _rows(cursor)

    async def fetchrow(self, statement: str, *args: Any) -> _Row | None:
        rows = await self.fetch(statement, *args)
        return rows[0] if rows else None

    async def fetchval(self, statement: str, *args: Any) -> Any:
        row = await self.fetchrow(statement, *args)
        return None if row is None else row[0]

    async def prepare(self, statement: str, *, name: str = "") -> _Prepared:  # noqa: ARG002 - asyncpg's
        return _Prepared(self, statement)

    async def copy_records_to_table(
        self,
        table_name: str,
        *,
        schema_name: str,
        columns: Iterable[str],
        records: Iterable[Sequence[Any]],
    ) -> None:
        into = sql.SQL("COPY {} ({}) FROM STDIN").format(
            sql.Identifier(schema_name, table_name),
            sql.SQL(", ").join(map(sql.Identifier, columns)),
        )
        try:
            async with self._connection.cursor() as cursor, cursor.copy(into) as copy:
                for record in records:
                    await copy.write_row(record)
        except psycopg.Error as error:
            raise _translated(error) from error

    def transaction(self) -> _Savepoint:
        return _Savepoint(self)

    def is_in_transaction(self) -> bool:
        status = self._connection.info.transaction_status
        return status in (TransactionStatus.INTRANS, TransactionStatus.INERROR)

    def is_closed(self) -> bool:
        return self._connection.closed

    def terminate(self) -> None:
        self._connection.pgconn.finish()


async def _rows(cursor: "AsyncRawCursor[Any]") -> list[_Row]:
    if cursor.description is None:
        return []
    columns = [column.name for column in cursor.description]
    rows = [_Row(row.values() if isinstance(row, dict) else row) for row in await cursor.fetchall()]
    for row in rows:
        row.columns = columns
    return rows


def _translated(error: "psycopg.Error") -> Exception:
    if error.sqlstate is None:
        return asyncpg.ConnectionDoesNotExistError(str(error))
    fields = {"C": error.sqlstate, "M": error.diag.message_primary or str(error), "S": "ERROR"}
    return asyncpg.PostgresError.new(fields)
