"""`audit` and `verify` over a whole store, one run at a time.

Each run's books are read in a snapshot of their own, so that a long inspection holds nothing back
and needs no more memory than the longest journal.
"""

from collections.abc import AsyncIterator, Callable

import msgspec

from perdure.core import books as of_one_run
from perdure.core.books import Books, Finding
from perdure.core.ids import RunId
from perdure.store.store import Store


class Inspection(msgspec.Struct, frozen=True):
    """What was found in one run. Whoever keeps `head` elsewhere can tell later whether the journal
    up to there was rewritten."""

    run_id: RunId
    entries: int
    accounts: int
    head: bytes | None
    findings: list[Finding]


class Report(msgspec.Struct):
    """What was found in a whole store."""

    place: str
    runs: int = 0
    entries: int = 0
    accounts: int = 0
    findings: list[Finding] = []

    @property
    def is_clean(self) -> bool:
        return not self.findings

    def __str__(self) -> str:
        seen = f"runs {self.runs:,}, entries {self.entries:,}, accounts {self.accounts:,}"
        if self.is_clean:
            return f"{self.place}: clean ({seen})"
        head = f"{self.place}: findings {len(self.findings):,} ({seen})"
        return "\n  ".join([head, *map(str, self.findings)])


def audit_runs(store: Store) -> AsyncIterator[Inspection]:
    """Recompute every posting from the events and compare with every balance and semaphore."""
    return _inspect(store, of_one_run.audit)


def verify_runs(store: Store) -> AsyncIterator[Inspection]:
    """Follow every hash chain from its first entry to its head."""
    return _inspect(store, of_one_run.verify)


async def audit(store: Store) -> Report:
    """The audit of every run, summed up."""
    return await _sum_up(store, audit_runs(store))


async def verify(store: Store) -> Report:
    """The verification of every run, summed up."""
    return await _sum_up(store, verify_runs(store))


async def _inspect(
    store: Store, inspect: Callable[[Books], list[Finding]]
) -> AsyncIterator[Inspection]:
    async for books in store.books():
        head = None if books.ending is None else books.ending.head
        entries, accounts = len(books.entries), len(books.balances)
        yield Inspection(books.run_id, entries, accounts, head, inspect(books))


async def _sum_up(store: Store, inspections: AsyncIterator[Inspection]) -> Report:
    report = Report(store.name)
    async for inspection in inspections:
        report.runs += 1
        report.entries += inspection.entries
        report.accounts += inspection.accounts
        report.findings += inspection.findings
    return report
