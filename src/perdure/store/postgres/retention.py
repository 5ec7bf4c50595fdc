"""Runs that leave a Postgres store, or lose their data."""

from collections.abc import Sequence
from typing import Any

from perdure.core.ids import RunId
from perdure.core.limits import MAX_TIME_MS
from perdure.store.postgres.operations import UseConnection
from perdure.store.postgres.writing import Connection, transaction
from perdure.store.retention_table import (
    BARE_TABLES,
    ERASED_TABLES,
    TABLES_OF_RUNS,
    TAG_TABLES,
    EndPosition,
    ErasureOrder,
    Kin,
    Removal,
    Retainable,
    RetainedRun,
    ended_from,
    kin_from,
    removable_from,
    retained_from,
)
from perdure.store.rows.values import require_storable_values
from perdure.store.statements import statements

_SQL = statements("postgres_retention")
_ANY_TIME_US = MAX_TIME_MS


class PostgresRetention:
    """A change that is repeated after a lost connection finds what it did, and changes nothing more."""

    def __init__(self, use: UseConnection) -> None:
        self._use = use

    async def get(self, run_ids: Sequence[RunId]) -> dict[RunId, RetainedRun]:
        rows = await self._rows("select_retained", list(run_ids))
        return {row[0]: retained_from(row) for row in rows}

    async def kin(self, run_ids: Sequence[RunId]) -> list[Kin]:
        return [kin_from(row) for row in await self._rows("select_kin", list(run_ids))]

    async def ended(
        self, wanted: Retainable, after: EndPosition | None, until_ms: int, limit: int
    ) -> tuple[list[EndPosition], EndPosition | None]:
        rows = await self._rows("select_ended", *wanted, *_after(after), until_ms, limit)
        return ended_from(rows, limit)

    async def archived(
        self, wanted: Retainable, after: EndPosition | None, until_ms: int, limit: int
    ) -> list[RetainedRun]:
        rows = await self._rows("select_archived", *wanted, *_after(after), until_ms, limit)
        return [retained_from(row) for row in rows]

    async def beyond(self, wanted: Retainable, keep: int) -> EndPosition | None:
        rows = await self._rows("select_beyond", *wanted, keep)
        return EndPosition(*rows[0]) if rows else None

    async def erase(self, order: ErasureOrder) -> dict[str, int] | None:
        run_id = order.run_id
        require_storable_values([run_id, order.receipt])

        async def job(connection: Connection) -> dict[str, int] | None:
            async with transaction(connection):
                await connection.execute(_SQL["lock_runs"], [run_id])
                if not await connection.fetch(_SQL["select_erasable"], run_id, order.head):
                    return None
                changed = order.changed
                columns = (
                    [each.seq for each in changed],
                    [each.body for each in changed],
                    [each.erased for each in changed],
                )
                await connection.execute(_SQL["erase_entry"], run_id, *columns)
                await _delete_slots(connection, [run_id], _ANY_TIME_US)
                await connection.execute(_SQL["erase_audit"], run_id)
                await connection.execute(_SQL["erase_run"], run_id)
                await connection.execute(_SQL["retain_erased"], run_id, order.receipt)
                return await _delete(connection, ERASED_TABLES, [run_id])

        return await self._use(job)

    async def remove(self, removals: Sequence[Removal], now_ms: int) -> list[RunId]:
        of = {removal.run_id: removal for removal in removals}
        require_storable_values(of)

        async def job(connection: Connection) -> list[RunId]:
            async with transaction(connection):
                await connection.execute(_SQL["lock_runs"], list(of))
                rows = await connection.fetch(_SQL["select_removable"], list(of))
                found = removable_from(rows, of)
                ids = [run.run_id for run, _ in found]
                archives = [archive for _, archive in found]
                await connection.execute(_SQL["retain"], ids, archives, now_ms)
                await connection.execute(_SQL["delete_waits"], ids)
                await _delete_slots(connection, ids, now_ms * 1000)
                await _delete(
                    connection, TAG_TABLES, [run.run_id for run, at in found if at is None]
                )
                await _delete(connection, BARE_TABLES, ids)
                await connection.execute(_SQL["delete_runs"], ids)
                stored = await connection.fetch(_SQL["select_retained"], list(of))
            kept = [retained_from(row) for row in stored]
            return [run.run_id for run in kept if _is_done(run, of[run.run_id], now_ms)]

        return await self._use(job)

    async def purge_archived(self, run_ids: Sequence[RunId], now_ms: int) -> list[RunId]:
        return await self._take_out("purge_archived", list(run_ids), now_ms)

    async def erase_archived(self, run_id: RunId, before: str, archive: str, receipt: str) -> bool:
        return bool(await self._take_out("erase_archived", run_id, before, archive, receipt))

    async def tagged(self, name: str, value: str) -> list[RunId]:
        return [RunId(run_id) for (run_id,) in await self._rows("select_tagged", name, value)]

    async def unfinished(self, limit: int) -> list[RunId]:
        return [RunId(run_id) for (run_id,) in await self._rows("select_unfinished", limit)]

    async def finish(self, run_id: RunId) -> None:
        await self._rows("finish", run_id)

    async def sweep_messages(self, before_ms: int, limit: int) -> int:
        status = await self._use(lambda c: c.execute(_SQL["sweep_messages"], before_ms, limit))
        return int(status.rpartition(" ")[2])

    async def size(self) -> int | None:
        return None

    async def compact(self, *, full: bool) -> bool:
        """`VACUUM`; if `full`, `VACUUM FULL`, which locks one table after the other while it rewrites it."""
        tables = ", ".join(f"perdure.{name}" for name in ("run", *TABLES_OF_RUNS))
        await self._use(
            lambda c: c.execute(
                f"VACUUM ({'FULL, ' if full else ''}ANALYZE) {tables}", timeout=None
            )
        )
        return True

    async def _take_out(self, name: str, *values: Any) -> list[RunId]:
        """Change archived runs, which are no longer found by their tags. Returns those that were changed."""
        require_storable_values(values)

        async def job(connection: Connection) -> list[RunId]:
            async with transaction(connection):
                rows = await connection.fetch(_SQL[name], *values)
                changed = [RunId(run_id) for (run_id,) in rows]
                await _delete(connection, TAG_TABLES, changed)
            return changed

        return await self._use(job)

    async def _rows(self, name: str, *values: Any) -> list[Any]:
        require_storable_values(values)
        return await self._use(lambda connection: connection.fetch(_SQL[name], *values))


async def _delete_slots(connection: Connection, run_ids: Sequence[RunId], now_us: int) -> None:
    """Delete the rows of limits for keys that no other run has."""
    rows = await connection.fetch(_SQL["select_slots"], list(run_ids))
    if rows:
        slots = [slot for (slot,) in rows]
        await connection.execute(_SQL["lock_slots"], slots)
        await connection.execute(_SQL["delete_slots"], slots, now_us)


async def _delete(
    connection: Connection, tables: Sequence[str], run_ids: Sequence[RunId]
) -> dict[str, int]:
    counts = {}
    for table in tables:
        sql = _SQL["delete_rows"].replace(":table", table)
        status = await connection.execute(sql, list(run_ids))
        if count := int(status.rpartition(" ")[2]):
            counts[table] = count
    return counts


def _is_done(run: RetainedRun, removal: Removal, now_ms: int) -> bool:
    """Whether the removal was carried out, by this transaction or by one whose outcome was unknown."""
    if removal.archive is None:
        return run.purged_at_ms == now_ms
    return run.archive == removal.archive


def _after(after: EndPosition | None) -> tuple[int, str]:
    return (-1, "") if after is None else (after.closed_at_ms, after.run_id)
