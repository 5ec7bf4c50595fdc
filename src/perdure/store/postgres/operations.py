"""Operations in a Postgres store."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

import asyncpg

from perdure.core.errors import StoreUnavailable
from perdure.core.operations.data import LedgerData, decode, encode
from perdure.core.operations.log import LogLine
from perdure.core.operations.transitions import BeforeAfter, Decide, LedgerChange
from perdure.store.postgres.connections.opening import LOST
from perdure.store.postgres.writing import Connection, transaction
from perdure.store.statements import statements

T = TypeVar("T")
_SQL = statements("postgres_operations")
_OUTCOME = statements("postgres")
_MAX_LOCK_TIMEOUT_MS = 2**31 - 1

BeginTransaction = Callable[[Connection], AbstractAsyncContextManager[None]]


class UseConnection(Protocol):
    """Runs a job on a free connection of the store, and again on a new one if the connection is lost."""

    def __call__(self, job: Callable[[Connection], Awaitable[T]], /) -> Awaitable[T]: ...


class PostgresOperations:
    """Changes of one operation wait for each other's row lock, up to `lock_timeout_s`."""

    def __init__(self, use: UseConnection, lock_timeout_s: float) -> None:
        self._use = use
        self._lock_timeout_s = lock_timeout_s

    async def create(self, change: LedgerChange) -> bool:
        async def job(connection: Connection) -> bool:
            found = await connection.fetch(_SQL["create_operation"], *_row(change.data))
            if found:
                await _append(connection, change.data.operation_id, change.lines)
            return bool(found)

        return await self._use(_Once(job, partial(self._transaction, change.data.operation_id)))

    async def change(self, operation_id: str, decide: Decide) -> BeforeAfter | None:
        async def job(connection: Connection) -> BeforeAfter | None:
            found = await connection.fetchrow(_SQL["lock_operation"], operation_id)
            if found is None:
                return None
            before = _data(operation_id, found)
            change = decide(before)
            if change.data != before:
                await connection.execute(_SQL["update_operation"], *_row(change.data))
            await _append(connection, operation_id, change.lines)
            return BeforeAfter(before, change.data)

        return await self._use(_Once(job, partial(self._transaction, operation_id)))

    async def load(self, operation_id: str, *, backups: bool) -> LedgerData | None:
        rows = await self._rows("select_operation", operation_id, int(backups))
        return _data(operation_id, rows[0]) if rows else None

    async def back_up(self, operation_id: str, keep: int) -> None:
        async def job(connection: Connection) -> None:
            async with self._transaction(operation_id, connection):
                await connection.execute(_SQL["back_up_operation"], operation_id)
                await connection.execute(_SQL["delete_old_backups"], keep)

        await self._use(job)

    async def ids(self, *, backups: bool) -> list[str]:
        return [row[0] for row in await self._rows("select_operation_ids", int(backups))]

    async def lines(self, operation_id: str, *, debug: bool) -> list[str]:
        return [row[0] for row in await self._rows("select_lines", operation_id, debug)]

    async def _rows(self, name: str, *values: Any) -> list[Any]:
        return await self._use(lambda connection: connection.fetch(_SQL[name], *values))

    @asynccontextmanager
    async def _transaction(self, operation_id: str, connection: Connection) -> AsyncIterator[None]:
        # At least 1 ms: to Postgres, 0 means no timeout.
        timeout_ms = min(max(1, round(self._lock_timeout_s * 1000)), _MAX_LOCK_TIMEOUT_MS)
        try:
            async with transaction(connection, timeout_ms):
                yield
        except asyncpg.LockNotAvailableError as error:
            raise StoreUnavailable(
                f"operation {operation_id!r} has been locked for {self._lock_timeout_s:g} seconds",
                "end the session that holds it: pg_stat_activity has its open transaction",
            ) from error


class _Once(Generic[T]):
    """A job in a transaction of its own. A retry after a lost connection first checks whether the job was committed."""

    def __init__(self, job: Callable[[Connection], Awaitable[T]], begin: BeginTransaction) -> None:
        self._job = job
        self._begin = begin
        self._tried: tuple[str, T] | None = None

    async def __call__(self, connection: Connection) -> T:
        if self._tried is not None:
            token, result = self._tried
            is_committed = await connection.fetchval(_OUTCOME["settle_outcome"], token)
            if not is_committed:
                self._tried = None
            await _forget(connection, token)
            if is_committed:
                return result
        async with self._begin(connection):
            token = await connection.fetchval(_OUTCOME["write_outcome"])
            result = await self._job(connection)
            self._tried = (token, result)
        await _forget(connection, token)
        return result


async def _forget(connection: Connection, token: str) -> None:
    # The outcome is known: a connection lost here must not bring it into doubt again.
    with suppress(*LOST, asyncpg.InterfaceError):
        await connection.execute(_OUTCOME["forget_outcome"], token)


async def _append(connection: Connection, operation_id: str, lines: Sequence[LogLine]) -> None:
    if lines:
        levels, texts = [line.level.value for line in lines], [str(line) for line in lines]
        await connection.execute(_SQL["append_lines"], operation_id, levels, texts)


def _row(data: LedgerData) -> tuple[str, str, str]:
    return (data.operation_id, data.operation_state.value, encode(data).decode())


def _data(operation_id: str, row: Any) -> LedgerData:
    return decode(row[0].encode(), f"operation {operation_id!r}")
