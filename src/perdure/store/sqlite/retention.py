"""Runs that leave a SQLite store, or lose their data."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import apsw

from perdure.core.ids import RunId
from perdure.core.limits import MAX_TIME_MS
from perdure.store.retention_table import (
    BARE_TABLES,
    ERASED_TABLES,
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
from perdure.store.sqlite.connections.heartbeat_connection import json_list
from perdure.store.sqlite.connections.opening import retry_while_locked
from perdure.store.sqlite.operations import RunJob
from perdure.store.sqlite.writing import in_transaction
from perdure.store.statements import statements

T = TypeVar("T")
_SQL = statements("sqlite_retention")
_CHECKPOINT_TRIES = 100
_ANY_TIME_US = MAX_TIME_MS


class SqliteRetention:
    """`change` runs a job on the writing connection, `read` on a reading one."""

    def __init__(self, change: RunJob, read: RunJob) -> None:
        self._change = change
        self._read = read

    async def get(self, run_ids: Sequence[RunId]) -> dict[RunId, RetainedRun]:
        rows = await self._rows("select_retained", ids=json_list(run_ids))
        return {row[0]: retained_from(row) for row in rows}

    async def kin(self, run_ids: Sequence[RunId]) -> list[Kin]:
        return [kin_from(row) for row in await self._rows("select_kin", ids=json_list(run_ids))]

    async def ended(
        self, wanted: Retainable, after: EndPosition | None, until_ms: int, limit: int
    ) -> tuple[list[EndPosition], EndPosition | None]:
        rows = await self._rows(
            "select_ended", **_where(wanted), **_after(after), until_ms=until_ms, limit=limit
        )
        return ended_from(rows, limit)

    async def archived(
        self, wanted: Retainable, after: EndPosition | None, until_ms: int, limit: int
    ) -> list[RetainedRun]:
        rows = await self._rows(
            "select_archived", **_where(wanted), **_after(after), until_ms=until_ms, limit=limit
        )
        return [retained_from(row) for row in rows]

    async def beyond(self, wanted: Retainable, keep: int) -> EndPosition | None:
        rows = await self._rows("select_beyond", **_where(wanted), keep=keep)
        return EndPosition(*rows[0]) if rows else None

    async def erase(self, order: ErasureOrder) -> dict[str, int] | None:
        one = {"run_id": order.run_id}

        def job(connection: apsw.Connection) -> dict[str, int] | None:
            if not connection.execute(
                _SQL["select_erasable"], one | {"head": order.head}
            ).fetchall():
                return None
            rows = [(each.body, each.erased, order.run_id, each.seq) for each in order.changed]
            connection.executemany(_SQL["erase_entry"], rows)
            _delete_slots(connection, [order.run_id], _ANY_TIME_US)
            connection.execute(_SQL["erase_audit"], one)
            connection.execute(_SQL["erase_run"], one)
            connection.execute(_SQL["retain_erased"], one | {"receipt": order.receipt})
            return _delete(connection, ERASED_TABLES, [order.run_id])

        require_storable_values([order.run_id, order.receipt])
        return await self._overwrite(job)

    async def remove(self, removals: Sequence[Removal], now_ms: int) -> list[RunId]:
        of = {removal.run_id: removal for removal in removals}
        require_storable_values(of)

        def job(connection: apsw.Connection) -> list[RunId]:
            ids = {"ids": json_list(list(of))}
            rows = connection.execute(_SQL["select_removable"], ids).fetchall()
            found = removable_from(rows, of)
            connection.executemany(_SQL["retain"], [_retained(*each, now_ms) for each in found])
            removed = [run.run_id for run, _ in found]
            purged = [run.run_id for run, archive in found if archive is None]
            connection.execute(_SQL["delete_waits"], {"ids": json_list(removed)})
            _delete_slots(connection, removed, now_ms * 1000)
            _delete(connection, TAG_TABLES, purged)
            _delete(connection, BARE_TABLES, removed)
            connection.execute(_SQL["delete_runs"], {"ids": json_list(removed)})
            return removed

        return await self._overwrite(job)

    async def purge_archived(self, run_ids: Sequence[RunId], now_ms: int) -> list[RunId]:
        values = {"ids": json_list(run_ids), "now_ms": now_ms}
        return await self._take_out("purge_archived", values)

    async def erase_archived(self, run_id: RunId, before: str, archive: str, receipt: str) -> bool:
        values = {"run_id": run_id, "before": before, "archive": archive, "receipt": receipt}
        return bool(await self._take_out("erase_archived", values))

    async def tagged(self, name: str, value: str) -> list[RunId]:
        rows = await self._rows("select_tagged", name=name, value=value)
        return [RunId(run_id) for (run_id,) in rows]

    async def unfinished(self, limit: int) -> list[RunId]:
        return [RunId(run_id) for (run_id,) in await self._rows("select_unfinished", limit=limit)]

    async def finish(self, run_id: RunId) -> None:
        await self._write("finish", run_id=run_id)

    async def sweep_messages(self, before_ms: int, limit: int) -> int:
        def job(connection: apsw.Connection) -> int:
            values = {"before_ms": before_ms, "limit": limit}
            connection.execute(_SQL["sweep_messages"], values)
            return connection.changes()

        return await self._overwrite(job)

    async def size(self) -> int | None:
        def job(connection: apsw.Connection) -> int:
            return int(connection.pragma("page_count")) * int(connection.pragma("page_size"))

        return await self._read(job)

    async def compact(self, *, full: bool) -> bool:
        def rewrite(connection: apsw.Connection) -> None:
            retry_while_locked(lambda: connection.execute("VACUUM"))

        if full:
            await self._change(rewrite)
        for _ in range(_CHECKPOINT_TRIES):
            if await self._change(_empty_wal):
                return True
            await asyncio.sleep(0.01)  # a reader still needs the log
        return False

    async def _take_out(self, name: str, values: dict[str, Any]) -> list[RunId]:
        """Change archived runs, which are no longer found by their tags. Returns those that were changed."""

        def job(connection: apsw.Connection) -> list[RunId]:
            rows = connection.execute(_SQL[name], values).fetchall()
            changed = [RunId(cast("str", run_id)) for (run_id,) in rows]
            _delete(connection, TAG_TABLES, changed)
            return changed

        require_storable_values(values.values())
        return await self._overwrite(job)

    async def _overwrite(self, job: Callable[[apsw.Connection], T]) -> T:
        """Run a job in a transaction in which SQLite overwrites what it deletes."""

        def overwriting(connection: apsw.Connection) -> T:
            with _overwriting(connection):
                return cast("T", in_transaction(connection, lambda: job(connection)))

        return await self._change(overwriting)

    async def _write(self, name: str, /, **values: Any) -> list[Any]:
        require_storable_values(values.values())
        return await self._overwrite(lambda c: c.execute(_SQL[name], values).fetchall())

    async def _rows(self, name: str, /, **values: Any) -> list[Any]:
        require_storable_values(values.values())
        return await self._read(
            lambda c: retry_while_locked(lambda: c.execute(_SQL[name], values).fetchall())
        )


@contextmanager
def _overwriting(connection: apsw.Connection) -> Iterator[None]:
    connection.pragma("secure_delete", 1)
    try:
        yield
    finally:
        connection.pragma("secure_delete", 0)


def _empty_wal(connection: apsw.Connection) -> bool:
    """Copy the write-ahead log into the file and empty it. False while another connection reads."""
    if connection.pragma("journal_mode") != "wal":
        return True
    try:
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except (apsw.BusyError, apsw.LockedError):
        return False
    return True


def _delete_slots(connection: apsw.Connection, run_ids: Sequence[RunId], now_us: int) -> None:
    """Delete the rows of limits for keys that no other run has."""
    rows = connection.execute(_SQL["select_slots"], {"ids": json_list(run_ids)}).fetchall()
    if rows:
        slots = json_list([slot for (slot,) in rows])
        connection.execute(_SQL["delete_slots"], {"slots": slots, "now_us": now_us})


def _delete(
    connection: apsw.Connection, tables: Sequence[str], run_ids: Sequence[RunId]
) -> dict[str, int]:
    counts = {}
    ids = {"ids": json_list(run_ids)}
    for table in tables:
        connection.execute(_SQL["delete_rows"].replace(":table", table), ids)
        if connection.changes():
            counts[table] = connection.changes()
    return counts


def _retained(run: RetainedRun, archive: str | None, now_ms: int) -> tuple[Any, ...]:
    """The values of `retain`."""
    columns = (
        *(run.run_id, run.scope, run.program, run.status, run.created_at_ms, run.closed_at_ms),
        *(run.entries, run.head, run.parent, run.forked_from, run.chain),
    )
    return (*columns, archive, None if archive else now_ms, int(archive is None))


def _where(wanted: Retainable) -> dict[str, Any]:
    return {"status": wanted.status, "program": wanted.program, "scope": wanted.scope}


def _after(after: EndPosition | None) -> dict[str, Any]:
    return (
        {"after_ms": -1, "after_id": ""}
        if after is None
        else {
            "after_ms": after.closed_at_ms,
            "after_id": after.run_id,
        }
    )
