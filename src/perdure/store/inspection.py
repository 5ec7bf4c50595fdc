"""`audit` and `verify` over a whole store, one run at a time.

Each run's books are read in a snapshot of their own, so that a long inspection blocks nothing and needs no more
memory than the longest journal.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial

import msgspec

from perdure.core import books as of_one_run
from perdure.core.books import NO_RUN, AuditFinding, Books
from perdure.core.errors import StoreDamaged, UnknownRun
from perdure.core.heads import compare_end, compare_heads, parse_heads, spell_head, vanished
from perdure.core.ids import RunId
from perdure.store.store import Store


class Inspection(msgspec.Struct, frozen=True):
    """The findings in one run. A copy of `head` kept elsewhere shows later whether the journal was rewritten."""

    run_id: RunId
    entries: int
    accounts: int
    head: bytes | None
    findings: list[AuditFinding]


class Report(msgspec.Struct):
    """The findings in a whole store.

    `heads` has the end of each run's journal, as text by run id. Keep it outside the store and pass it to a later
    verification.
    """

    place: str
    runs: int = 0
    entries: int = 0
    accounts: int = 0
    findings: list[AuditFinding] = []
    heads: dict[RunId, str] = {}

    @property
    def is_clean(self) -> bool:
        return not self.findings

    def __str__(self) -> str:
        seen = f"runs {self.runs:,}, entries {self.entries:,}, accounts {self.accounts:,}"
        if self.is_clean:
            return f"{self.place}: clean ({seen})"
        head = f"{self.place}: findings {len(self.findings):,} ({seen})"
        return "\n  ".join([head, *map(str, self.findings)])


OnRun = Callable[["Inspection"], None]
"""Called with each run that was inspected, for progress."""


def audit_runs(
    store: Store, now_ms: int | None = None, run_ids: Sequence[RunId] | None = None
) -> AsyncIterator[Inspection]:
    """Recompute all postings from the events, and compare them with balances, rows and obligations."""
    return _inspect(store, partial(of_one_run.audit_books, now_ms=now_ms), run_ids)


def verify_runs(
    store: Store, heads: Mapping[str, str] | None = None, run_ids: Sequence[RunId] | None = None
) -> AsyncIterator[Inspection]:
    """Follow every hash chain from its first entry to its head, and compare with `heads` of an earlier report."""
    kept = parse_heads(heads or {})

    def inspect(books: Books) -> list[AuditFinding]:
        found = of_one_run.verify_books(books)
        if books.run_id in kept and books.problem is None:
            found += compare_heads(books.run_id, books.entries, kept[books.run_id])
        return found

    return _inspect(store, inspect, run_ids)


async def audit_store(
    store: Store,
    now_ms: int | None = None,
    run_ids: Sequence[RunId] | None = None,
    on_run: OnRun | None = None,
) -> Report:
    """Audit every run, and the database's own check of its files; with `run_ids`, these runs alone.

    Without the time now, work may be due at any time.
    """
    inspections = audit_runs(store, now_ms, run_ids)
    return await _sum_up(store, inspections, on_run, checks_files=run_ids is None)


async def verify_store(
    store: Store,
    heads: Mapping[str, str] | None = None,
    run_ids: Sequence[RunId] | None = None,
    on_run: OnRun | None = None,
) -> Report:
    """Verify every run, and the database's own check of its files; with `run_ids`, these runs alone.

    `heads` are from an earlier report: a run that is missing, shorter or rewritten since then is a finding. Of a run
    that was archived or purged, the head that is left is compared.
    """
    inspections = verify_runs(store, heads, run_ids)
    report = await _sum_up(store, inspections, on_run, checks_files=run_ids is None)
    missing = parse_heads(heads or {}).items() if run_ids is None else ()
    absent = [each for each in missing if each[0] not in report.heads]
    kept = await store.retention.get([run_id for run_id, _ in absent])
    for run_id, head in absent:
        run = kept.get(run_id)
        if run is None or (run.archive is None and run.purged_at_ms is None):
            report.findings.append(vanished(run_id, head))
        else:
            report.findings += compare_end(run_id, run.entries, run.head, head)
            report.heads[run_id] = spell_head(run.entries, run.head)
    return report


async def _inspect(
    store: Store,
    inspect: Callable[[Books], list[AuditFinding]],
    run_ids: Sequence[RunId] | None = None,
) -> AsyncIterator[Inspection]:
    async for books in store.books() if run_ids is None else _books_of(store, run_ids):
        head = None if books.ending is None else books.ending.head
        entries, accounts = len(books.entries), len(books.balances)
        yield Inspection(books.run_id, entries, accounts, head, _findings(books, inspect))


async def _books_of(store: Store, run_ids: Sequence[RunId]) -> AsyncIterator[Books]:
    for run_id in run_ids:
        books = await store.books_of(run_id)
        if books.ending is None and not books.entries and books.problem is None:
            raise UnknownRun(f"there is no run {run_id!r}", "check the id and the store")
        yield books


def _findings(books: Books, inspect: Callable[[Books], list[AuditFinding]]) -> list[AuditFinding]:
    try:
        return inspect(books)
    except (
        Exception
    ) as error:  # values of types that no column has: one run must not hide the others
        what = f"its rows hold invalid values ({type(error).__name__}: {error})"
        return [AuditFinding(books.run_id, 0, "rows_unreadable", what)]


async def _sum_up(
    store: Store,
    inspections: AsyncIterator[Inspection],
    on_run: OnRun | None,
    *,
    checks_files: bool,
) -> Report:
    report = Report(store.name)
    try:
        if checks_files:
            report.findings += [_of_file(problem) for problem in await store.check()]
        async for inspection in inspections:
            if on_run is not None:
                on_run(inspection)
            report.runs += 1
            report.entries += inspection.entries
            report.accounts += inspection.accounts
            report.findings += inspection.findings
            if inspection.head is not None:
                report.heads[inspection.run_id] = spell_head(inspection.entries, inspection.head)
    except StoreDamaged as error:
        report.findings.append(_of_file(f"the store can't be read to the end: {error}"))
    return report


def _of_file(problem: str) -> AuditFinding:
    return AuditFinding(NO_RUN, 0, "file_damaged", problem)
