"""Checks a run's row and ledger against its journal when a host loads the run.

`core/books.py` audits whole stores and reports every difference. Here the first few differences are enough to say why
the run must not resume.
"""

from collections.abc import Iterable, Iterator, Mapping

from perdure.core.books import RunRowSummary, key_in_row, start_differences
from perdure.core.errors import BooksDiffer
from perdure.core.ids import RunId
from perdure.core.journal.events import Event, ExecutionStarted
from perdure.core.journal.state import TERMINAL, State
from perdure.core.ledger import AccountId, digits_of

MOST_NAMED = 3
"""How many differences an error names; the audit reports all."""


def require_row(run_id: RunId, row: RunRowSummary, state: State, first: Event | None) -> None:
    """Raise `BooksDiffer`, with both values, if the row contradicts the journal, whose first event is `first`."""
    _require_none(run_id, _row_differences(row, state, first))


def require_ledger(
    run_id: RunId, held: Mapping[AccountId, int], posted: Mapping[AccountId, int]
) -> None:
    """Raise `BooksDiffer`, with both values, if an account does not hold the sum of its postings."""
    if held != posted:
        _require_none(run_id, _ledger_differences(held, posted))


def _row_differences(row: RunRowSummary, state: State, first: Event | None) -> Iterator[str]:
    if row.semaphore != state.semaphore:
        yield f"the semaphore is {row.semaphore} in its row and {state.semaphore} by its journal"
    if row.status != state.status:
        yield f"the status is {row.status!r} in its row and {state.status.value!r} by its journal"
    if (row.closed_at_ms is not None) != (state.status in TERMINAL):
        closed = "open" if row.closed_at_ms is None else f"closed at {row.closed_at_ms}"
        yield f"the run is {closed} in its row and {state.status.value!r} by its journal"
    key = key_in_row(row, first) if isinstance(first, ExecutionStarted) else None
    if row.key != key:
        yield f"the start key is {row.key!r} in its row and {key!r} by its journal"
    if isinstance(first, ExecutionStarted):
        for column, held, recorded in start_differences(row, first):
            yield f"the {column} is {held!r} in its row and {recorded!r} by its journal"


def _ledger_differences(
    held: Mapping[AccountId, int], posted: Mapping[AccountId, int]
) -> Iterator[str]:
    for account in sorted(held.keys() | posted.keys()):
        have, want = held.get(account, 0), posted.get(account, 0)
        if have != want:
            yield (
                f"account {account} holds {digits_of(have)} in the ledger "
                f"and {digits_of(want)} by its journal"
            )


def _require_none(run_id: RunId, differences: Iterable[str]) -> None:
    found = list(differences)
    if found:
        more = f"; and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
        raise BooksDiffer(
            f"the books of run {run_id!r} do not balance: {'; '.join(found[:MOST_NAMED])}{more}",
            "run `engine.audit()` for all differences, restore the row from a backup, and start the engine again",
        )
