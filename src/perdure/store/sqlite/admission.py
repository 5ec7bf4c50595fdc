"""Admission in a SQLite store, on the store's connections."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar, cast

import apsw

from perdure.core.admission.rules import NO_SLOT, Setting
from perdure.core.ids import HostId, RunId
from perdure.core.messages import Message
from perdure.store import admission_steps as steps
from perdure.store.admission_table import Admitted, Entered, Entrant, Pending, SlotStanding
from perdure.store.admission_table import StoredSetting as Stored
from perdure.store.rows.values import require_storable_values
from perdure.store.sqlite.connections.bulk_statements import fetch_rows
from perdure.store.sqlite.connections.opening import retry_while_locked
from perdure.store.sqlite.operations import RunJob
from perdure.store.sqlite.writing import in_transaction
from perdure.store.statements import statements

T = TypeVar("T")
_SQL = statements("sqlite_admission")


class SqliteAdmission:
    """`change` runs a job on the writing connection, `read` on a reading one."""

    def __init__(self, change: RunJob, read: RunJob) -> None:
        self._change = change
        self._read = read

    async def enter(
        self, entrants: Sequence[Entrant], owner: HostId | None, now_ms: int
    ) -> list[Entered]:
        return await self._write(lambda: steps.enter(entrants, owner, now_ms))

    async def dequeue(
        self,
        owner: HostId | None,
        programs: Sequence[str],
        now_ms: int,
        slots: Sequence[str] = (),
        after: str = NO_SLOT,
    ) -> Admitted:
        return await self._write(lambda: steps.dequeue(owner, programs, now_ms, slots, after))

    async def call_up(self, message: Message) -> bool:
        return await self._write(lambda: steps.call_up(message))

    async def approve(self, message: Message, now_ms: int) -> bool:
        return await self._write(lambda: steps.approve(message, now_ms))

    async def put_off(self, message: Message, ready_at_ms: int) -> bool:
        return await self._write(lambda: steps.put_off(message, ready_at_ms))

    async def set_limit(self, name: str, setting: Setting, at_ms: int) -> None:
        await self._write(lambda: steps.set_limit(name, setting, at_ms))

    async def reset_limit(self, name: str) -> bool:
        return await self._write(lambda: steps.reset_limit(name))

    async def pending(self, run_id: RunId) -> Pending | None:
        return await self._look(lambda: steps.find_pending(run_id))

    async def settings(self) -> list[Stored]:
        return await self._look(steps.find_settings)

    async def standing(self, slot: str) -> tuple[SlotStanding, Setting | None]:
        return await self._look(lambda: steps.find_standing(slot))

    async def slots(self, name: str, after: str, limit: int) -> list[SlotStanding]:
        return await self._look(lambda: steps.find_slots(name, after, limit))

    async def _write(self, begin: Callable[[], steps.Steps[T]]) -> T:
        def job(connection: apsw.Connection) -> T:
            taken = in_transaction(connection, lambda: _take(connection, begin()))
            return cast("T", taken)

        return await self._change(job)

    async def _look(self, begin: Callable[[], steps.Steps[T]]) -> T:
        return await self._read(
            lambda connection: retry_while_locked(partial(_begin, connection, begin))
        )


def _begin(connection: apsw.Connection, begin: Callable[[], steps.Steps[T]]) -> T:
    return _take(connection, begin())


def _take(connection: apsw.Connection, taken: steps.Steps[T]) -> T:
    """Execute each statement that the steps ask for."""
    rows: list[Any] = []
    try:
        ask = next(taken)
        while True:
            if ask.rows is not None:
                require_storable_values(ask.rows)
                rows = fetch_rows(connection, _SQL[ask.name], ask.rows)
            else:
                values: dict[str, Any] = dict(ask.values or {})
                require_storable_values(values.values())
                rows = connection.execute(_SQL[ask.name], values).fetchall()
            ask = taken.send(rows)
    except StopIteration as end:
        return cast("T", end.value)
