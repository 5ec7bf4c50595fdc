"""Schedules in a Postgres store."""

from collections.abc import Sequence
from typing import Any

from perdure.core.errors import StoreDamaged
from perdure.core.schedules.schedule import Tick
from perdure.store.postgres.operations import UseConnection
from perdure.store.postgres.writing import Connection, transaction
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
from perdure.store.statements import statements

_SQL = statements("postgres_schedules")


class PostgresSchedules:
    """A write that is repeated after a lost connection finds its revision made, and reports that another was first."""

    def __init__(self, use: UseConnection) -> None:
        self._use = use

    async def write(self, stored: StoredSchedule, ticks: Sequence[Tick] = ()) -> bool:
        values = (
            *(stored.scope, stored.name, stored.program, stored.payload),
            *(encoded(stored.schedule), stored.look_at_ms, stored.revision),
        )
        require_storable_values(values)
        where = stored.scope, stored.name

        async def job(connection: Connection) -> bool:
            statement = "change_schedule" if stored.revision > 1 else "create_schedule"
            async with transaction(connection):
                if not await connection.fetch(_SQL[statement], *values):
                    return False
                if ticks:
                    bodies = [encoded(tick) for tick in ticks]
                    await connection.execute(_SQL["append_ticks"], *where, bodies)
                    await connection.execute(_SQL["delete_old_ticks"], *where, KEPT_TICKS)
            return True

        return await self._use(job)

    async def all(self, scope: str | None = None, name: str | None = None) -> list[StoredSchedule]:
        return [schedule_from(row) for row in await self._rows("select_schedules", scope, name)]

    async def due(
        self, programs: Sequence[str], now_ms: int, skipped: int = 0
    ) -> list[StoredSchedule | StoreDamaged]:
        names = list(programs)
        rows = await self._rows("select_due_schedules", now_ms, names, MOST_DUE, skipped)
        return [due_from(row) for row in rows]

    async def delete(self, scope: str, name: str) -> None:
        async def job(connection: Connection) -> None:
            async with transaction(connection):
                await connection.execute(_SQL["delete_schedule"], scope, name)
                await connection.execute(_SQL["delete_ticks"], scope, name)

        await self._use(job)

    async def ticks(self, scope: str, name: str, limit: int) -> list[Tick]:
        return [tick_from(row) for row in await self._rows("select_ticks", scope, name, limit)]

    async def _rows(self, name: str, *values: Any) -> list[Any]:
        return await self._use(lambda connection: connection.fetch(_SQL[name], *values))
