"""Reads of several statements in one snapshot."""

from collections.abc import Sequence
from typing import Any

from perdure.core.books import Books
from perdure.core.ids import RunId
from perdure.core.journal.entry import Entry
from perdure.core.ledger import AccountId
from perdure.store.postgres.writing import Connection
from perdure.store.records import Run
from perdure.store.rowforms import ending_from, entry_from, loaded_from
from perdure.store.statements import statements

_SQL = statements("postgres")


async def load(connection: Connection, run_ids: Sequence[RunId]) -> list[tuple[Run, list[Entry]]]:
    """Rows and journals of those runs that exist, in the order of ids."""
    async with _snapshot(connection):
        runs = await connection.fetch(_SQL["select_runs"], run_ids)
        entries = await connection.fetch(_SQL["select_journals"], run_ids)
    return loaded_from(runs, entries)


async def next_books(connection: Connection, *, after: str) -> Books | None:
    """Both books of the run that follows `after`."""
    async with _snapshot(connection):
        run_id = await connection.fetchval(_SQL["select_next_run_id"], after)
        if run_id is None:
            return None
        run = await connection.fetchrow(_SQL["select_run"], run_id)
        entries = await connection.fetch(_SQL["select_all_entries"], run_id)
        balances = await connection.fetch(_SQL["select_balances"], run_id)
    return Books(
        RunId(run_id),
        None if run is None else ending_from(run),
        tuple(map(entry_from, entries)),
        {AccountId(account): balance for account, balance in balances},
    )


def _snapshot(connection: Connection) -> Any:
    return connection.transaction(isolation="repeatable_read", readonly=True)
