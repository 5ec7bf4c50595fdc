"""Admission in a Postgres store."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from perdure.core.admission.rules import NO_SLOT, Setting
from perdure.core.ids import HostId, RunId
from perdure.core.messages import Message
from perdure.store import admission_steps as steps
from perdure.store.admission_table import Admitted, Entered, Entrant, Pending, SlotStanding
from perdure.store.admission_table import StoredSetting as Stored
from perdure.store.postgres.operations import UseConnection
from perdure.store.postgres.writing import Connection, transaction
from perdure.store.rows.records import Run
from perdure.store.rows.runs import run_from
from perdure.store.rows.values import require_storable_values
from perdure.store.statements import statements

T = TypeVar("T")
_SQL = statements("postgres_admission")


class PostgresAdmission:
    """A transaction whose connection is lost is repeated. One that had been committed then finds its runs made, or
    admitted, and reports them as before."""

    def __init__(self, use: UseConnection) -> None:
        self._use = use

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
        in_doubt: list[Run] = []

        async def job(connection: Connection) -> Admitted:
            before = await _still_owned(connection, in_doubt, owner)
            async with transaction(connection):
                begun = steps.dequeue(owner, programs, now_ms, slots, after)
                admitted = await _take(connection, begun)
                # Before the commit: if its outcome is not known, the repetition looks whether these were admitted.
                in_doubt.extend(admitted.runs)
            return Admitted((*before, *admitted.runs), admitted.has_more, admitted.last_slot)

        return await self._use(job)

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
        async def job(connection: Connection) -> T:
            async with transaction(connection):
                return await _take(connection, begin())

        return await self._use(job)

    async def _look(self, begin: Callable[[], steps.Steps[T]]) -> T:
        return await self._use(lambda connection: _take(connection, begin()))


async def _still_owned(
    connection: Connection, runs: Sequence[Run], owner: HostId | None
) -> tuple[Run, ...]:
    """Those of these runs that an earlier try has admitted for this owner, and that have not begun."""
    if not runs:
        return ()
    rows = await connection.fetch(_SQL["select_runs"], [run.run_id for run in runs])
    found = map(run_from, rows)
    return tuple(run for run in found if run.owner == owner and run.epoch and not run.seq)


async def _take(connection: Connection, taken: steps.Steps[T]) -> T:
    """Execute each statement that the steps ask for."""
    try:
        ask = next(taken)
        while True:
            if ask.rows is not None:
                require_storable_values(ask.rows)
                columns: list[Any] = [list(column) for column in zip(*ask.rows, strict=True)]
            else:
                columns = list((ask.values or {}).values())
                require_storable_values(columns)
            rows = await connection.fetch(_SQL[ask.name], *columns)
            ask = taken.send([tuple(row) for row in rows])
    except StopIteration as end:
        return cast("T", end.value)
