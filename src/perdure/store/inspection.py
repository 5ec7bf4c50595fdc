"""`audit` and `verify` over a whole store, one run at a time.

Each run's books are read in a snapshot of their own, so that a long inspection holds nothing back.
"""

from collections.abc import Callable

import msgspec

from perdure.core import books as of_one_run
from perdure.core.books import Books, Finding
from perdure.store.store import Store


class Report(msgspec.Struct):
    """What an inspection saw. `heads` are for anchoring elsewhere: whoever has them can tell later
    whether the journals up to there were rewritten."""

    place: str
    runs: int
    entries: int
    accounts: int
    findings: list[Finding]
    heads: dict[str, str]

    @property
    def is_clean(self) -> bool:
        return not self.findings

    def __str__(self) -> str:
        seen = f"{self.runs:,} runs, {self.entries:,} entries, {self.accounts:,} accounts"
        if self.is_clean:
            return f"{self.place}: clean ({seen})"
        lines = [f"{self.place}: {len(self.findings):,} findings ({seen})"]
        return "\n".join(lines + [f"  {finding}" for finding in self.findings])


async def audit(store: Store) -> Report:
    """Recompute every posting from the events and compare with every balance and semaphore."""
    return await _inspect(store, of_one_run.audit)


async def verify(store: Store) -> Report:
    """Follow every hash chain from its first entry to its head."""
    return await _inspect(store, of_one_run.verify)


async def _inspect(store: Store, inspect: Callable[[Books], list[Finding]]) -> Report:
    report = Report(store.name, 0, 0, 0, [], {})
    async for books in store.books():
        report.runs += 1
        report.entries += len(books.entries)
        report.accounts += len(books.balances)
        report.findings += inspect(books)
        if books.ending is not None:
            report.heads[books.run_id] = books.ending.head.hex()
    return report
