"""Reads of several statements in one snapshot."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import apsw

from perdure.core.books import Books
from perdure.core.ids import RunId
from perdure.core.journal.entry import Entry
from perdure.core.ledger import AccountId
from perdure.store.records import Run
from perdure.store.rowforms import ending_from, loaded_from
from perdure.store.statements import statements

_SQL = statements("sqlite")


def load(connection: apsw.Connection, run_ids: Sequence[RunId]) -> list[tuple[Run, list[Entry]]]:
    """Rows and journals of those runs that exist, in the order of ids."""
    ids = json.dumps(list(run_ids))
    with _snapshot(connection):
        runs = _read(connection, "select_runs", ids=ids)
        entries = _read(connection, "select_journals", ids=ids)
    return loaded_from(runs, entries)


def next_books(connection: apsw.Connection, *, after: str) -> Books | None:
    """Both books of the run that follows `after`."""
    with _snapshot(connection):
        run_id = _read(connection, "select_next_run_id", after=after)[0][0]
        if run_id is None:
            return None
        runs = _read(connection, "select_run", run_id=run_id)
        entries = _read(connection, "select_all_entries", run_id=run_id)
        balances = _read(connection, "select_balances", run_id=run_id)
    return Books(
        RunId(run_id),
        ending_from(runs[0]) if runs else None,
        tuple(map(_damaged_entry_from, entries)),
        {AccountId(account): balance for account, balance in balances},
    )


@contextmanager
def _snapshot(connection: apsw.Connection) -> Iterator[None]:
    if connection.in_transaction:
        # A store in memory, where a user's transaction is open: it has one connection.
        yield
        return
    connection.execute("BEGIN")
    try:
        yield
    finally:
        connection.execute("COMMIT")


def _read(connection: apsw.Connection, name: str, **values: Any) -> list[Any]:
    return connection.execute(_SQL[name], values).fetchall()


def _damaged_entry_from(row: Any) -> Entry:
    """An entry whose text may not even be text: then it reads otherwise, and hashes otherwise."""
    seq, at_ms, body, *rest = row
    return Entry(seq, at_ms, body.decode(errors="replace"), *rest)
