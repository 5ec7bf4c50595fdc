"""Operations in a SQLite store, on the store's connections."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar, cast

import apsw

from perdure.core.errors import StoreUnavailable
from perdure.core.operations.data import LedgerData, decode, encode
from perdure.core.operations.log import LogLine
from perdure.core.operations.transitions import BeforeAfter, Decide, LedgerChange
from perdure.store.sqlite.connections.connection import BUSY_MS
from perdure.store.sqlite.connections.opening import retry_while_locked
from perdure.store.sqlite.writing import in_transaction
from perdure.store.statements import statements

T = TypeVar("T")
_SQL = statements("sqlite_operations")
_MAX_LOCK_TIMEOUT_MS = 2**31 - 1


class RunJob(Protocol):
    """Runs a job on one of the store's connections."""

    def __call__(self, job: Callable[[apsw.Connection], T], /) -> Awaitable[T]: ...


class SqliteOperations:
    """`change` runs a job on the writing connection, `read` on a reading one."""

    def __init__(self, change: RunJob, read: RunJob, lock_timeout_s: float) -> None:
        self._change = change
        self._read = read
        self._lock_timeout_s = lock_timeout_s

    async def create(self, change: LedgerChange) -> bool:
        def job(connection: apsw.Connection) -> bool:
            connection.execute(_SQL["create_operation"], _row(change.data))
            is_new = connection.changes() == 1
            if is_new:
                _append(connection, change.data.operation_id, change.lines)
            return is_new

        return await self._change(self._committed(job))

    async def change(self, operation_id: str, decide: Decide) -> BeforeAfter | None:
        def job(connection: apsw.Connection) -> BeforeAfter | None:
            found = connection.execute(_SQL["lock_operation"], {"id": operation_id}).fetchone()
            if found is None:
                return None
            before = _data(operation_id, found)
            change = decide(before)
            if change.data != before:
                connection.execute(_SQL["update_operation"], _row(change.data))
            _append(connection, operation_id, change.lines)
            return BeforeAfter(before, change.data)

        return await self._change(self._committed(job))

    async def load(self, operation_id: str, *, backups: bool) -> LedgerData | None:
        rows = await self._rows("select_operation", id=operation_id, backed_up=int(backups))
        return _data(operation_id, rows[0]) if rows else None

    async def back_up(self, operation_id: str, keep: int) -> None:
        def job(connection: apsw.Connection) -> None:
            connection.execute(_SQL["back_up_operation"], {"id": operation_id})
            for (old,) in connection.execute(_SQL["select_old_backups"], {"keep": keep}).fetchall():
                connection.execute(_SQL["delete_lines"], {"id": old})
                connection.execute(_SQL["delete_operation"], {"id": old})

        await self._change(self._committed(job))

    async def ids(self, *, backups: bool) -> list[str]:
        rows = await self._rows("select_operation_ids", backed_up=int(backups))
        return [operation_id for (operation_id,) in rows]

    async def lines(self, operation_id: str, *, debug: bool) -> list[str]:
        rows = await self._rows("select_lines", id=operation_id, debug=int(debug))
        return [line for (line,) in rows]

    async def _rows(self, name: str, **values: Any) -> list[Any]:
        def job(connection: apsw.Connection) -> list[Any]:
            return retry_while_locked(lambda: connection.execute(_SQL[name], values).fetchall())

        return await self._read(job)

    def _committed(self, job: Callable[[apsw.Connection], T]) -> Callable[[apsw.Connection], T]:
        """The job, in a transaction of its own."""

        def run(connection: apsw.Connection) -> T:
            self._begin(connection)
            return cast("T", in_transaction(connection, lambda: job(connection)))

        return run

    def _begin(self, connection: apsw.Connection) -> None:
        """Take the file's write lock, or raise `StoreUnavailable` after the timeout."""
        connection.set_busy_timeout(min(round(self._lock_timeout_s * 1000), _MAX_LOCK_TIMEOUT_MS))
        try:
            connection.execute("BEGIN IMMEDIATE")
        except apsw.BusyError as error:
            raise StoreUnavailable(
                f"the store's file has been locked for {self._lock_timeout_s:g} seconds",
                "resume or end the process that writes to it: its lock is released then",
            ) from error
        finally:
            connection.set_busy_timeout(BUSY_MS)


def _append(connection: apsw.Connection, operation_id: str, lines: Sequence[LogLine]) -> None:
    for line in lines:
        what: dict[str, Any] = {"id": operation_id, "level": line.level.value, "line": str(line)}
        connection.execute(_SQL["append_line"], what)


def _row(data: LedgerData) -> dict[str, Any]:
    state = data.operation_state.value
    return {"id": data.operation_id, "state": state, "data": encode(data).decode()}


def _data(operation_id: str, row: Any) -> LedgerData:
    return decode(row[0].encode(), f"operation {operation_id!r}")
