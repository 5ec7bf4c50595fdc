"""Schedules in a SQLite store, on the store's connections."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import apsw
import msgspec

from perdure.core.errors import StoreDamaged
from perdure.core.schedules.schedule import Tick
from perdure.store.rows.values import require_storable_values
from perdure.store.schedule_table import (
    KEPT_TICKS,
    MOST_DUE,
    StoredSchedule,
    due_from,
    encoded,
    schedule_from,
    tick_from,
)
from perdure.store.sqlite.connections.opening import retry_while_locked
from perdure.store.sqlite.operations import RunJob
from perdure.store.sqlite.writing import in_transaction
from perdure.store.statements import statements

T = TypeVar("T")
_SQL = statements("sqlite_schedules")


class SqliteSchedules:
    """`change` runs a job on the writing connection, `read` on a reading one."""

    def __init__(self, change: RunJob, read: RunJob) -> None:
        self._change = change
        self._read = read

    async def write(self, stored: StoredSchedule, ticks: Sequence[Tick] = ()) -> bool:
        where = {"scope": stored.scope, "name": stored.name}
        values = {
            **where,
            "program": stored.program,
            "payload": stored.payload,
            "state": encoded(stored.schedule),
            "look_at_ms": stored.look_at_ms,
        }
        require_storable_values(values.values())
        if stored.revision > 1:
            values["revision"] = stored.revision

        def job(connection: apsw.Connection) -> bool:
            statement = "change_schedule" if stored.revision > 1 else "create_schedule"
            connection.execute(_SQL[statement], values)
            if connection.changes() != 1:
                return False
            for tick in ticks:
                connection.execute(_SQL["append_tick"], {**where, "body": encoded(tick)})
            if ticks:
                connection.execute(_SQL["delete_old_ticks"], {**where, "keep": KEPT_TICKS})
            return True

        return await self._change(_committed(job))

    async def all(self, scope: str | None = None, name: str | None = None) -> list[StoredSchedule]:
        return [
            schedule_from(row)
            for row in await self._rows("select_schedules", scope=scope, name=name)
        ]

    async def due(
        self, programs: Sequence[str], now_ms: int, skipped: int = 0
    ) -> list[StoredSchedule | StoreDamaged]:
        names = msgspec.json.encode(programs).decode()
        bounds = {"limit": MOST_DUE, "skipped": skipped}
        rows = await self._rows("select_due_schedules", now_ms=now_ms, programs=names, **bounds)
        return [due_from(row) for row in rows]

    async def delete(self, scope: str, name: str) -> None:
        where = {"scope": scope, "name": name}

        def job(connection: apsw.Connection) -> None:
            connection.execute(_SQL["delete_schedule"], where)
            connection.execute(_SQL["delete_ticks"], where)

        await self._change(_committed(job))

    async def ticks(self, scope: str, name: str, limit: int) -> list[Tick]:
        rows = await self._rows("select_ticks", scope=scope, name=name, limit=limit)
        return [tick_from(row) for row in rows]

    async def _rows(self, statement: str, /, **values: Any) -> list[Any]:
        require_storable_values(values.values())

        def job(connection: apsw.Connection) -> list[Any]:
            return retry_while_locked(
                lambda: connection.execute(_SQL[statement], values).fetchall()
            )

        return await self._read(job)


def _committed(job: Callable[[apsw.Connection], T]) -> Callable[[apsw.Connection], T]:
    """The job, in a transaction of its own."""
    return lambda connection: cast("T", in_transaction(connection, lambda: job(connection)))
