"""The two books of one run, compared: do they balance, and is every entry what it was?

`audit` recomputes every posting from the events, sums them, and compares with every balance and with
the semaphore. `verify` follows the hash chain from the first entry to the head. Both name what they
find by run and entry.
"""

from collections.abc import Iterator, Sequence

import msgspec

from perdure.core.errors import PerdureError
from perdure.core.ids import RunId
from perdure.core.journal.entry import HASH_BYTES, Entry, genesis
from perdure.core.journal.events import Event
from perdure.core.journal.invariants import violations
from perdure.core.journal.postings import effect_of
from perdure.core.journal.state import fold
from perdure.core.ledger import AccountId, digits_of


class Ending(msgspec.Struct, frozen=True):
    """What the run's own row says of its books: how many entries, the last hash, what is open."""

    seq: int
    head: bytes
    semaphore: int
    status: str


class Books(msgspec.Struct, frozen=True):
    """Both books of one run, read in one snapshot. `ending` is `None` if the run's row is gone."""

    run_id: RunId
    ending: Ending | None
    entries: tuple[Entry, ...]
    balances: dict[AccountId, int]


class Finding(msgspec.Struct, frozen=True):
    """One thing that is wrong, with the run and the entry that it was found at."""

    run_id: RunId
    seq: int
    name: str
    detail: str

    def __str__(self) -> str:
        return f"{self.name}: run {self.run_id} entry {self.seq}: {self.detail}"


class _Recorded(msgspec.Struct, frozen=True):
    """An event decoded once, for the many questions that are asked of it."""

    seq: int
    event: Event


def audit(books: Books) -> list[Finding]:
    """Everything in which journal, ledger and semaphore disagree; empty if the books balance."""
    findings: list[Finding] = []

    def find(seq: int, name: str, detail: str) -> None:
        findings.append(Finding(books.run_id, seq, name, detail))

    journal = []
    for entry in books.entries:
        try:
            event = entry.event
            effect_of(event)
            journal.append(_Recorded(entry.seq, event))
        except PerdureError as error:
            find(entry.seq, "entry_unreadable", error.what)
    for violation in violations(journal):
        find(violation.seq, violation.name, violation.detail)
    sums, last_seq, semaphore = _sums(journal)
    end = journal[-1].seq if journal else 0
    for account in sorted(sums.keys() | books.balances.keys()):
        posted, held = sums.get(account, 0), books.balances.get(account, 0)
        if posted != held:
            what = f"{account} holds {digits_of(held)}, its postings sum to {digits_of(posted)}"
            find(last_seq.get(account, end), "balance_differs", what)
        elif account not in sums:
            find(end, "account_surplus", f"nothing was ever posted to {account}")
    findings += _audit_ending(books, journal, semaphore)
    return findings


def _sums(journal: Sequence[_Recorded]) -> tuple[dict[AccountId, int], dict[AccountId, int], int]:
    """Each account's postings summed, the last entry that posted to it, and the semaphore."""
    sums: dict[AccountId, int] = {}
    last_seq: dict[AccountId, int] = {}
    semaphore = 0
    for entry in journal:
        postings, delta = effect_of(entry.event)
        semaphore += delta
        for account, increment in postings:
            sums[account] = sums.get(account, 0) + increment
            last_seq[account] = entry.seq
    return sums, last_seq, semaphore


def _audit_ending(books: Books, journal: Sequence[_Recorded], semaphore: int) -> Iterator[Finding]:
    ending = books.ending
    end = journal[-1].seq if journal else 0
    if ending is None:
        yield Finding(books.run_id, end, "run_missing", "there are entries or accounts, but no run")
        return
    if ending.semaphore != semaphore:
        what = f"the semaphore is {ending.semaphore}, the entries leave {semaphore} open"
        yield Finding(books.run_id, end, "semaphore_differs", what)
    status = fold(entry.event for entry in journal).status
    if ending.status != status:
        what = f"the run is {ending.status}, its entries leave it {status}"
        yield Finding(books.run_id, end, "status_differs", what)
    yield from _missing(books)


def verify(books: Books) -> list[Finding]:
    """Every entry that is missing or is not what the next one was chained to."""
    entries = books.entries
    findings = list(_missing(books))
    findings += (
        Finding(books.run_id, entry.seq, "entry_altered", "its erasure mark is not what it was")
        for entry in entries
        if entry.erased is not None and not _was_erased(entry)
    )
    broken = _broken_links(books)
    for link in sorted(broken):
        if link - 1 in broken and link - 1 > 0:
            # An entry whose own link was altered breaks the one before it and the one after it.
            continue
        altered = link if link + 1 in broken or link == 0 else link - 1
        what = f"is not what it was when it was written (hash {entries[altered].hash.hex()[:16]})"
        findings.append(Finding(books.run_id, entries[altered].seq, "entry_altered", what))
    return findings


def _broken_links(books: Books) -> set[int]:
    """Positions `i` at which entry `i` does not continue entry `i` - 1.

    A gap in the sequence is not a broken link: the missing entries are named on their own.
    """
    entries, ending = books.entries, books.ending
    broken = set()
    if entries and entries[0].seq == 0 and entries[0].prev != genesis(books.run_id):
        broken.add(0)
    for i in range(1, len(entries)):
        before, entry = entries[i - 1], entries[i]
        if entry.seq == before.seq + 1 and entry.prev != before.hash:
            broken.add(i)
    if entries and ending is not None:
        last = entries[-1]
        if last.seq + 1 == ending.seq and last.hash != ending.head:
            broken.add(len(entries))
    return broken


def _was_erased(entry: Entry) -> bool:
    """Whether the mark that `erase` leaves can be true: a digest, in the place of a payload."""
    return (
        entry.sealed is None
        and entry.erased is not None
        and len(entry.erased) == HASH_BYTES
        and any(entry.erased)
    )


def _missing(books: Books) -> Iterator[Finding]:
    """Sequence numbers that the run's row counts but the journal does not have, and others."""
    expected = books.ending.seq if books.ending is not None else 0
    due = 0
    for entry in books.entries:
        if entry.seq > due:
            yield _gap(books.run_id, due, entry.seq)
        if entry.seq < 0 or (books.ending is not None and entry.seq >= expected):
            what = f"the run counts {expected} entries only"
            yield Finding(books.run_id, entry.seq, "entry_surplus", what)
        due = max(due, entry.seq + 1)
    if due < expected:
        yield _gap(books.run_id, due, expected)
    if not books.entries and books.ending is not None and not expected:
        yield Finding(books.run_id, 0, "entry_missing", "a run without any entry")


def _gap(run_id: RunId, first: int, end: int) -> Finding:
    """One finding for a gap, however wide."""
    what = "there is no such entry" if end == first + 1 else f"nor any up to entry {end - 1}"
    return Finding(run_id, first, "entry_missing", what)
