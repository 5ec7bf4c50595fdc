"""Reads of several statements in one snapshot."""

from collections.abc import Sequence
from typing import Any

import asyncpg

from perdure.core.books import Books, unreadable
from perdure.core.ids import RunId
from perdure.core.journal.entry import Entry
from perdure.core.ledger import AccountId
from perdure.core.list_rows import ListRows
from perdure.core.obligations import Outstanding
from perdure.store.postgres.connections.opening import CONFLICT, LOST
from perdure.store.postgres.writing import Connection
from perdure.store.retention_table import retained_from
from perdure.store.rows.records import Run, StoredRun
from perdure.store.rows.runs import (
    ROWS_OF_GRAPHS,
    ROWS_OF_RUNS,
    RowBatch,
    ending_from,
    entry_from,
    graphs_among,
    list_rows_from,
    loaded_from,
    open_child_runs,
    outstanding_from,
    stored_from,
)
from perdure.store.statements import statements

_SQL = statements("postgres") | statements("postgres_graphs") | statements("postgres_retention")


async def load(connection: Connection, run_ids: Sequence[RunId]) -> list[tuple[Run, list[Entry]]]:
    """Rows and journals of the runs that exist, in the order of ids."""
    async with _snapshot(connection):
        runs = await connection.fetch(_SQL["select_runs"], run_ids)
        entries = await connection.fetch(_SQL["select_journals"], run_ids)
    return loaded_from(runs, entries)


async def load_all(connection: Connection, run_ids: Sequence[RunId]) -> list[StoredRun]:
    """As `load`, with ledgers, messages, work and graph rows."""
    async with _snapshot(connection):
        runs = await connection.fetch(_SQL["select_runs"], run_ids)
        loaded = loaded_from(runs, await connection.fetch(_SQL["select_journals"], run_ids))
        rows: RowBatch = {
            name: await connection.fetch(_SQL[name], run_ids) for name in ROWS_OF_RUNS
        }
        graphs = graphs_among(loaded)
        for name in ROWS_OF_GRAPHS if graphs else ():
            rows[name] = await connection.fetch(_SQL[name], graphs)
    return stored_from(loaded, frozenset(graphs), rows)


async def next_books(connection: Connection, *, after: str) -> Books | None:
    """Both books of the run that follows `after`. An error in its rows is reported in its books."""
    run_id = await connection.fetchval(_SQL["select_next_run_id"], after)
    return None if run_id is None else await books_of(connection, run_id=RunId(run_id))


async def books_of(connection: Connection, *, run_id: RunId) -> Books:
    """Both books of one run. An error in its rows is reported in its books."""
    try:
        return await _books_of(connection, run_id)
    except (*LOST, *CONFLICT, asyncpg.InterfaceError):
        raise
    except (asyncpg.PostgresError, UnicodeDecodeError) as error:
        return unreadable(run_id, error)


async def _books_of(connection: Connection, run_id: RunId) -> Books:
    async with _snapshot(connection):
        run = await connection.fetchrow(_SQL["select_run"], run_id)
        entries = await connection.fetch(_SQL["select_all_entries"], run_id)
        balances = await connection.fetch(_SQL["select_balances"], run_id)
        ending = None if run is None else ending_from(run)
        found = tuple(map(entry_from, entries))
        outstanding = Outstanding()
        if ending is not None and ending.closed_at_ms is None:
            outstanding = await _outstanding(connection, run_id, found)
        listed = await _list_rows(connection, run_id)
        kept = []
        if any(entry.is_redacted for entry in found):
            kept = await connection.fetch(_SQL["select_retained"], [run_id])
    receipt = retained_from(kept[0]).receipt if kept else None
    held = {AccountId(account): balance for account, balance in balances}
    return Books(run_id, ending, found, held, outstanding, listed=listed, receipt=receipt)


async def list_rows(connection: Connection, *, run_id: RunId) -> ListRows:
    """What lists find a run by."""
    async with _snapshot(connection):
        return await _list_rows(connection, run_id)


async def _list_rows(connection: Connection, run_id: RunId) -> ListRows:
    return list_rows_from(
        await connection.fetchrow(_SQL["select_list_columns"], run_id),
        await connection.fetch(_SQL["select_tags"], run_id),
        await connection.fetch(_SQL["select_parked_steps"], run_id),
    )


async def _outstanding(
    connection: Connection, run_id: RunId, entries: Sequence[Entry]
) -> Outstanding:
    return outstanding_from(
        await connection.fetch(_SQL["select_step_messages"], [run_id]),
        await connection.fetch(_SQL["select_queued"], [run_id]),
        {
            step: await connection.fetchrow(_SQL["select_chain_end"], child)
            for step, child in open_child_runs(run_id, entries).items()
        },
        await connection.fetch(_SQL["select_sent_messages"], run_id),
    )


def _snapshot(connection: Connection) -> Any:
    return connection.transaction(isolation="repeatable_read", readonly=True)
