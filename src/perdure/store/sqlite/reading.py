"""Reads of several statements in one snapshot."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import apsw

from perdure.core.books import Books, unreadable
from perdure.core.ids import RunId
from perdure.core.journal.entry import Entry
from perdure.core.ledger import AccountId
from perdure.core.list_rows import ListRows
from perdure.core.obligations import Outstanding
from perdure.store.retention_table import retained_from
from perdure.store.rows.records import Run, StoredRun
from perdure.store.rows.runs import (
    ROWS_OF_GRAPHS,
    ROWS_OF_RUNS,
    RowBatch,
    ending_from,
    graphs_among,
    list_rows_from,
    loaded_from,
    open_child_runs,
    outstanding_from,
    stored_from,
)
from perdure.store.sqlite.connections.damage import DAMAGE
from perdure.store.statements import statements

_SQL = statements("sqlite") | statements("sqlite_graphs") | statements("sqlite_retention")


def load(connection: apsw.Connection, run_ids: Sequence[RunId]) -> list[tuple[Run, list[Entry]]]:
    """Rows and journals of the runs that exist, in the order of ids."""
    ids = json.dumps(list(run_ids))
    with snapshot(connection):
        runs = _read(connection, "select_runs", ids=ids)
        entries = _read(connection, "select_journals", ids=ids)
    return loaded_from(runs, entries)


def load_all(connection: apsw.Connection, run_ids: Sequence[RunId]) -> list[StoredRun]:
    """As `load`, with ledgers, messages, work and graph rows."""
    ids = json.dumps(list(run_ids))
    with snapshot(connection):
        runs = _read(connection, "select_runs", ids=ids)
        loaded = loaded_from(runs, _read(connection, "select_journals", ids=ids))
        rows: RowBatch = {name: _read(connection, name, ids=ids) for name in ROWS_OF_RUNS}
        graphs = graphs_among(loaded)
        if graphs:
            few = json.dumps(graphs)
            rows |= {name: _read(connection, name, ids=few) for name in ROWS_OF_GRAPHS}
    return stored_from(loaded, frozenset(graphs), rows)


def next_books(connection: apsw.Connection, *, after: str) -> Books | None:
    """Both books of the run that follows `after`. Damage in its rows is reported in its books."""
    with snapshot(connection):
        run_id = _read(connection, "select_next_run_id", after=after)[0][0]
        return None if run_id is None else _readable_books(connection, RunId(run_id))


def books_of(connection: apsw.Connection, *, run_id: RunId) -> Books:
    """Both books of one run. Damage in its rows is reported in its books."""
    with snapshot(connection):
        return _readable_books(connection, run_id)


def _readable_books(connection: apsw.Connection, run_id: RunId) -> Books:
    try:
        return _books_of(connection, run_id)
    except DAMAGE as error:
        return unreadable(run_id, error)


def _books_of(connection: apsw.Connection, run_id: RunId) -> Books:
    runs = _read(connection, "select_run", run_id=run_id)
    entries = _read(connection, "select_all_entries", run_id=run_id)
    balances = _read(connection, "select_balances", run_id=run_id)
    ending = ending_from(runs[0]) if runs else None
    found = tuple(map(_damaged_entry_from, entries))
    outstanding = Outstanding()
    if ending is not None and ending.closed_at_ms is None:
        outstanding = _outstanding(connection, run_id, found)
    held = {AccountId(account): balance for account, balance in balances}
    listed = _list_rows(connection, run_id)
    receipt = None
    if any(entry.is_redacted for entry in found):
        kept = _read(connection, "select_retained", ids=json.dumps([run_id]))
        receipt = retained_from(kept[0]).receipt if kept else None
    return Books(run_id, ending, found, held, outstanding, listed=listed, receipt=receipt)


def list_rows(connection: apsw.Connection, *, run_id: RunId) -> ListRows:
    """What lists find a run by."""
    with snapshot(connection):
        return _list_rows(connection, run_id)


def _list_rows(connection: apsw.Connection, run_id: RunId) -> ListRows:
    return list_rows_from(
        next(iter(_read(connection, "select_list_columns", run_id=run_id)), None),
        _read(connection, "select_tags", run_id=run_id),
        _read(connection, "select_parked_steps", run_id=run_id),
    )


def _outstanding(
    connection: apsw.Connection, run_id: RunId, entries: Sequence[Entry]
) -> Outstanding:
    ids = json.dumps([run_id])
    return outstanding_from(
        _read(connection, "select_step_messages", ids=ids),
        _read(connection, "select_queued", ids=ids),
        {
            step: next(iter(_read(connection, "select_chain_end", first=child)), None)
            for step, child in open_child_runs(run_id, entries).items()
        },
        _read(connection, "select_sent_messages", run_id=run_id),
    )


@contextmanager
def snapshot(connection: apsw.Connection) -> Iterator[None]:
    """What the block reads is from one snapshot."""
    if connection.in_transaction:
        # A store in memory has one connection, on which a user's transaction is open.
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
    """An entry whose text may be invalid UTF-8: then its hash does not match, and the audit reports it."""
    seq, at_ms, body, *rest = row
    return Entry(seq, at_ms, (body or b"").decode(errors="replace"), *rest)
