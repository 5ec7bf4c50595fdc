"""Rows of runs, messages, work and streams, decoded into values."""

from collections import defaultdict
from collections.abc import Container, Iterable, Sequence
from typing import Any

import msgspec

from perdure.core.books import RunRowSummary
from perdure.core.errors import PerdureError
from perdure.core.ids import Guid, RunId, StepId
from perdure.core.journal.entry import Entry
from perdure.core.journal.state import Status
from perdure.core.ledger import AccountId
from perdure.core.list_rows import ListRows
from perdure.core.messages import Message, MessageSummary, Work, WorkSummary
from perdure.core.obligations import Child, Outstanding, obligations_of
from perdure.core.replay.identity import child_run_id
from perdure.core.streams.chunks import ChunkOrigin, StoredChunk
from perdure.store.rows.records import (
    Claim,
    GraphRows,
    InboxRow,
    Progress,
    ReadinessRow,
    Run,
    StoredRun,
)
from perdure.store.rows.values import RowValues


def chunk_from(row: Sequence[Any]) -> StoredChunk:
    position, step, attempt, claim, payload, at_ms = row
    return StoredChunk(position, ChunkOrigin(StepId(step), attempt, claim), payload, at_ms)


def span_from(row: Sequence[Any]) -> tuple[ChunkOrigin, range]:
    step, attempt, claim, first, last = row
    return ChunkOrigin(StepId(step), attempt, claim), range(first, last + 1)


_TYPES = dict.fromkeys(("run_id", "scope", "program", "version", "digest"), str) | {
    **dict.fromkeys(("epoch", "seq", "semaphore", "created_at_ms"), int),
    "head": bytes,
}
"""The columns that every run's row must have, with their types."""


def run_from(row: Iterable[Any]) -> Run:
    """A run from its row. Invalid values go to `damage` instead of being raised, so that other runs stay readable."""
    run = Run(*row)
    wrong = [
        f"its {name} is {getattr(run, name)!r}"
        for name, wanted in _TYPES.items()
        if not isinstance(getattr(run, name), wanted)
    ]
    # Text that can't be decoded arrives as bytes.
    optional = ((name, getattr(run, name)) for name in ("key", "owner", "parked", "chain"))
    wrong += [f"its {name} is {value!r}" for name, value in optional if isinstance(value, bytes)]
    try:
        status = Status(run.status)
    except ValueError:
        status = Status.PENDING
        wrong.append(f"its status is {run.status!r}")
    return msgspec.structs.replace(run, status=status, damage=", ".join(wrong) or None)


def ending_from(row: Sequence[Any]) -> RunRowSummary:
    """The end of a run's books from its row, even if other columns are damaged."""
    scope, program, version, digest, key = row[1:6]
    epoch, seq, head, semaphore, status = row[7:12]
    return RunRowSummary(
        program,
        version,
        digest,
        seq,
        head,
        semaphore,
        status,
        key,
        chain=row[15],
        closed_at_ms=row[13],
        scope=scope,
        epoch=epoch,
    )


def ending_of(run: Run) -> RunRowSummary:
    """The end of a run's books from the decoded run."""
    return RunRowSummary(
        *(run.program, run.version, run.digest, run.seq, run.head, run.semaphore),
        *(str(run.status), run.key, run.chain, run.closed_at_ms, run.scope, run.epoch),
    )


def list_rows_from(
    columns: Sequence[Any] | None, tags: Iterable[Sequence[Any]], parked: Iterable[Sequence[Any]]
) -> ListRows:
    """What lists find a run by. `columns` is `None` if the run has no row."""
    parent, forked_from, error, slot, is_in_line = columns or (None, None, None, None, False)
    return ListRows(
        parent,
        forked_from,
        error,
        slot,
        tags=frozenset((name, value) for name, value in tags),
        parked=frozenset(StepId(step) for (step,) in parked),
        is_in_line=bool(is_in_line),
    )


def progress_from(row: Sequence[Any]) -> Progress:
    last = entry_from(row[17:]) if row[17] is not None else None
    return Progress(run_from(row[:16]), row[16], last)


def entry_from(row: Iterable[Any]) -> Entry:
    return Entry(*row)


def loaded_from(
    runs: Iterable[Sequence[Any]], entries: Iterable[Sequence[Any]]
) -> list[tuple[Run, list[Entry]]]:
    """Each run with its journal, from run rows and from entries that begin with their run's id.

    Entries of a run whose row is missing are left out: the other runs of the read are sound.
    """
    journals = journals_from(entries)
    return [(run_from(row), journals.get(row[0], [])) for row in runs]


def journals_from(entries: Iterable[Sequence[Any]]) -> dict[RunId, list[Entry]]:
    """Entries by run, from rows that begin with their run's id."""
    journals: defaultdict[RunId, list[Entry]] = defaultdict(list)
    for run_id, *entry in entries:
        journals[run_id].append(entry_from(entry))
    return dict(journals)


def open_child_runs(run_id: RunId, entries: Sequence[Entry]) -> dict[StepId, RunId]:
    """The child runs that an open run waits for, by step; none if its journal can't be read."""
    if not any('"place":"run"' in entry.body for entry in entries):
        return {}
    try:
        owed = obligations_of(entry.event for entry in entries)
    except PerdureError:
        return {}  # the audit reports the entry
    children = owed.children.items()
    return {step: child_run_id(run_id, step, attempt) for step, attempt in children}


def outstanding_from(
    messages: Iterable[Sequence[Any]],
    work: Iterable[Sequence[Any]],
    children: dict[StepId, Sequence[Any] | None],
    sent: Iterable[Sequence[Any]] = (),
) -> Outstanding:
    """A run's messages about steps, work, children, and what was sent to it. `children` are rows of the last runs of
    their chains, or `None`."""
    return Outstanding(
        {Guid(guid): MessageSummary(*row) for _, guid, *row in messages},
        {StepId(step): WorkSummary(*row) for _, step, *row in work},
        {
            step: Child(row is not None, row is not None and row[13] is not None)
            for step, row in children.items()
        },
        {Guid(guid): MessageSummary(*row) for _, guid, *row in sent},
    )


ROWS_OF_RUNS = ("select_ledgers", "select_step_messages", "select_queued")
"""The other statements that `load_all` executes for all runs."""

ROWS_OF_GRAPHS = ("select_all_readiness", "select_all_inboxes", "select_all_waits")
"""The statements for runs of graphs. The rows of all of these begin with the run's id."""

RowBatch = dict[str, Sequence[Sequence[Any]]]


def graphs_among(loaded: Iterable[tuple[Run, list[Entry]]]) -> list[RunId]:
    """Which of these runs are of graphs: their first entries name a trigger."""
    return [
        run.run_id
        for run, entries in loaded
        if any('"trigger":' in entry.body for entry in entries[:2])  # an approval may come first
    ]


def stored_from(
    loaded: Sequence[tuple[Run, list[Entry]]], graphs: Container[RunId], rows: RowBatch
) -> list[StoredRun]:
    """Each run with its journal and its other rows, which are given by the names of the statements above."""
    of = {name: _by_run(found) for name, found in rows.items()}
    nothing: dict[str, list[RowValues]] = {}

    def found(name: str, run_id: RunId) -> list[RowValues]:
        return of.get(name, nothing).get(run_id, [])

    return [
        StoredRun(
            run,
            entries,
            {AccountId(account): held for account, held in found("select_ledgers", run.run_id)},
            {
                Guid(guid): MessageSummary(*row)
                for guid, *row in found("select_step_messages", run.run_id)
            },
            {StepId(step): WorkSummary(*row) for step, *row in found("select_queued", run.run_id)},
            GraphRows(
                [ReadinessRow(*row) for row in found("select_all_readiness", run.run_id)],
                [InboxRow(*row) for row in found("select_all_inboxes", run.run_id)],
                [(StepId(step), RunId(box)) for step, box in found("select_all_waits", run.run_id)],
            )
            if run.run_id in graphs
            else None,
        )
        for run, entries in loaded
    ]


def _by_run(rows: Iterable[Sequence[Any]]) -> dict[str, list[RowValues]]:
    found: dict[str, list[RowValues]] = {}
    for run_id, *row in rows:
        found.setdefault(run_id, []).append(tuple(row))
    return found


def message_from(row: Iterable[Any]) -> Message:
    run_id, guid, kind, due_at_ms, arrival, step, payload = row
    return Message(
        RunId(run_id),
        Guid(guid),
        kind,
        due_at_ms,
        arrival,
        None if step is None else StepId(step),
        payload,
    )


def claim_from(row: Iterable[Any]) -> Claim:
    run_id, step, guid, queue, available_at_ms, priority, payload, token, claims, owner = row
    work = Work(RunId(run_id), StepId(step), Guid(guid), queue, available_at_ms, priority, payload)
    if isinstance(
        owner, bytes
    ):  # its text may be damaged: whom to hint is no reason to leave the work
        owner = owner.decode(errors="replace")
    return Claim(work, token, claims, owner)


def claims_in(claims: Sequence[Claim], rows: Iterable[Sequence[Any]]) -> list[Claim]:
    """The claims whose run and step are in the rows that a statement returned."""
    found = {(row[0], row[1]) for row in rows}
    return [claim for claim in claims if (claim.work.run_id, claim.work.step) in found]
