"""Compares the two books of a run: do they balance, and is every entry unchanged?

`audit_books` recomputes every posting from the events, sums them, and compares with every balance and with
the semaphore. `verify_books` follows the hash chain from the first entry to the head. Both name what they
find by run and entry.
"""

from collections.abc import Iterator, Sequence
from hashlib import sha256

import msgspec

from perdure.core.errors import PerdureError
from perdure.core.ids import RunId
from perdure.core.journal.entry import HASH_BYTES, Entry, genesis
from perdure.core.journal.events import Event, ExecutionStarted, started_of
from perdure.core.journal.invariants import violations
from perdure.core.journal.postings import effect_of
from perdure.core.journal.state import TERMINAL, fold
from perdure.core.ledger import AccountId, digits_of
from perdure.core.list_rows import ListRows, list_differences
from perdure.core.messages import START, damage_of_sent
from perdure.core.obligations import Lifetime, Outstanding, missing, obligations_of
from perdure.core.runs.erasing import read_erasure

NO_RUN = RunId("")
"""The run id of findings about the store as a whole."""


class RunRowSummary(msgspec.Struct, frozen=True):
    """The columns of a run's row that its journal determines.

    `seq` is the number of entries, `head` the hash of the last, `key` the start key; `chain` is the first run of the
    chain, if the run continues another one.
    """

    program: str
    version: str
    digest: str
    seq: int
    head: bytes
    semaphore: int
    status: str
    key: str | None = None
    chain: str | None = None
    closed_at_ms: int | None = None
    scope: str = ""
    epoch: int = 1
    """0 while the run is pending."""


class Books(msgspec.Struct, frozen=True):
    """Both books of one run, read in one snapshot. `ending` is `None` if the run has no row."""

    run_id: RunId
    ending: RunRowSummary | None
    entries: tuple[Entry, ...]
    balances: dict[AccountId, int]
    outstanding: Outstanding = Outstanding()
    problem: str | None = None
    """Why the database can't read the run's rows; `None` if it can."""
    listed: ListRows | None = None
    """What lists find the run by; `None` if it was not read."""
    receipt: str | None = None
    """The receipt of what was erased; `None` if there is none."""


def unreadable(run_id: RunId, error: Exception) -> Books:
    """The books of a run whose rows the database can't read."""
    return Books(run_id, None, (), {}, problem=f"{type(error).__name__}: {error}")


class AuditFinding(msgspec.Struct, frozen=True):
    """One problem, with its run and entry."""

    run_id: RunId
    seq: int
    name: str
    detail: str

    def __str__(self) -> str:
        if not self.run_id:
            return f"{self.name}: {self.detail}"
        return f"{self.name}: run {self.run_id} entry {self.seq}: {self.detail}"


class _Recorded(msgspec.Struct, frozen=True):
    """A decoded event: each entry is decoded once."""

    seq: int
    event: Event


def audit_books(books: Books, now_ms: int | None = None) -> list[AuditFinding]:
    """All disagreements between journal, ledger, row and obligations; empty if the books balance.

    Without the time now, work on a queue may be due at any time.
    """
    if books.problem is not None:
        return [_unread(books.run_id, books.problem)]
    findings: list[AuditFinding] = []

    def find(seq: int, name: str, detail: str) -> None:
        findings.append(AuditFinding(books.run_id, seq, name, detail))

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
    findings += _audit_obligations(books, journal, now_ms)
    findings += _audit_sent(books, end)
    findings += _audit_lists(books, journal)
    findings += _audit_place(books)
    return findings


def _sums(journal: Sequence[_Recorded]) -> tuple[dict[AccountId, int], dict[AccountId, int], int]:
    """By account: the sum of its postings, and the last entry that posted to it. And the semaphore."""
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


def _audit_ending(
    books: Books, journal: Sequence[_Recorded], semaphore: int
) -> Iterator[AuditFinding]:
    ending = books.ending
    end = journal[-1].seq if journal else 0
    if ending is None:
        yield AuditFinding(
            books.run_id, end, "run_missing", "there are entries or accounts, but no run"
        )
        return
    if ending.semaphore != semaphore:
        what = f"the semaphore is {ending.semaphore}, the entries leave {semaphore} open"
        yield AuditFinding(books.run_id, end, "semaphore_differs", what)
    status = fold(entry.event for entry in journal).status
    if ending.status != status:
        what = f"the run is {ending.status}, its entries leave it {status}"
        yield AuditFinding(books.run_id, end, "status_differs", what)
    if (ending.closed_at_ms is not None) != (status in TERMINAL):
        said = "open" if ending.closed_at_ms is None else "over"
        what = f"the run's row has it {said}, its entries leave it {status}"
        yield AuditFinding(books.run_id, end, "closing_differs", what)
    yield from _audit_first_entry(books.run_id, ending, journal)
    yield from _missing(books)


def _audit_first_entry(
    run_id: RunId, ending: RunRowSummary, journal: Sequence[_Recorded]
) -> Iterator[AuditFinding]:
    """The start key, the scope and the program that the row names are those of the first entry."""
    first = _started(journal)
    if first is None:
        return
    key = key_in_row(ending, first)
    if ending.key != key:
        what = f"the start key of the run is {ending.key!r}, its first entry says {key!r}"
        yield AuditFinding(run_id, 0, "key_differs", what)
    for column, held, recorded in start_differences(ending, first):
        what = f"the {column} of the run is {held!r}, its first entry says {recorded!r}"
        yield AuditFinding(run_id, 0, f"{column}_differs", what)


def _started(journal: Sequence[_Recorded]) -> ExecutionStarted | None:
    """The first entry, or the one after the approval, if it is there."""
    if not journal or journal[0].seq != 0:
        return None
    return started_of([entry.event for entry in journal[:2]])


def _audit_place(books: Books) -> Iterator[AuditFinding]:
    """A pending run has a place in line, and no other run has one: without it the run would never begin."""
    ending, rows = books.ending, books.listed
    if ending is None or rows is None:
        return
    is_pending = ending.epoch == 0 and ending.closed_at_ms is None
    if is_pending and not rows.is_in_line:
        what = "the run is pending, and has no place in line: it would never begin"
        yield AuditFinding(books.run_id, 0, "place_missing", what)
    if rows.is_in_line and not is_pending:
        what = "the run is not pending, and has a place in line"
        yield AuditFinding(books.run_id, 0, "place_surplus", what)


def _audit_lists(books: Books, journal: Sequence[_Recorded]) -> Iterator[AuditFinding]:
    """Lists find the run by what its first and last entries say. Needs a complete journal."""
    ending, rows = books.ending, books.listed
    first = _started(journal)
    if first is None or ending is None or rows is None:
        return
    if len(journal) != ending.seq:
        return
    for found in list_differences(rows, first, journal[-1].event):
        seq = journal[-1].seq if found.is_at_end else 0
        yield AuditFinding(books.run_id, seq, found.name, found.detail)


def key_in_row(row: RunRowSummary, first: ExecutionStarted) -> str | None:
    """The start key that the row must have. Later runs of a chain, and forks, have it in their first entry only."""
    return first.idempotency_key if row.chain is None and first.forks is None else None


def start_differences(
    row: RunRowSummary, first: ExecutionStarted
) -> Iterator[tuple[str, str, str]]:
    """Columns that differ from the first entry: column, value in the row, value in the entry.

    A run records the scope, program, version and digest that it began with. A run that continues on other code keeps
    them. Older entries have no scope.
    """
    for column, held, recorded in (
        ("scope", row.scope, row.scope if first.scope is None else first.scope),
        ("program", row.program, first.program),
        ("version", row.version, first.version),
        ("digest", row.digest, first.component_digest),
    ):
        if held != recorded:
            yield column, held, recorded
    if (row.chain is None) != (first.continues is None):
        yield "chain", row.chain or "", first.continues or ""


def _audit_obligations(
    books: Books, journal: Sequence[_Recorded], now_ms: int | None
) -> Iterator[AuditFinding]:
    """Obligations of an open run without a row that would end them. Needs a complete journal."""
    ending = books.ending
    if ending is None or ending.closed_at_ms is not None or len(journal) != ending.seq:
        return
    if not journal:
        return  # it has not begun
    opened = {
        step: entry.seq
        for entry in journal
        for step in [getattr(entry.event, "promise_id", None)]
        if step is not None
    }
    owed = obligations_of(entry.event for entry in journal)
    life = None if now_ms is None else Lifetime(books.entries[0].at_ms, now_ms)
    for step, name, what in missing(books.run_id, owed, books.outstanding, life):
        yield AuditFinding(books.run_id, opened[step], name, what)


def _audit_sent(books: Books, end: int) -> Iterator[AuditFinding]:
    """Messages sent to an open run that no sender wrote like this: they would never be delivered."""
    held = books.outstanding
    for guid, message in sorted([*held.sent.items(), *held.messages.items()]):
        damage = damage_of_sent(message)
        if damage is not None:
            yield AuditFinding(books.run_id, end, "message_damaged", f"message {guid} {damage}")


def verify_books(books: Books) -> list[AuditFinding]:
    """All missing and altered entries, by the hash chain; and a ledger that is gone. Its balances are for the audit."""
    if books.problem is not None:
        return [_unread(books.run_id, books.problem)]
    entries = books.entries
    findings = [*_missing(books), *_missing_ledger(books)]
    findings += (
        AuditFinding(
            books.run_id, entry.seq, "entry_altered", "its erasure mark is not what it was"
        )
        for entry in entries
        if entry.erased is not None and not _was_erased(entry)
    )
    findings += _without_receipt(books)
    broken = _broken_links(books)
    for link in sorted(broken):
        if link - 1 in broken and link - 1 > 0:
            # An altered link breaks the chain before and after its entry: report it once.
            continue
        altered = link if link + 1 in broken or link == 0 else link - 1
        what = f"is not what it was when it was written (hash {entries[altered].hash.hex()[:16]})"
        findings.append(AuditFinding(books.run_id, entries[altered].seq, "entry_altered", what))
    return findings


def _missing_ledger(books: Books) -> Iterator[AuditFinding]:
    """A finding if the run has no account, though an entry posts to one."""
    if books.balances:
        return
    for entry in books.entries:
        try:
            postings, _ = effect_of(entry.event)
        except PerdureError:
            continue  # the chain shows it
        if postings:
            what = f"it posts to {postings[0][0]}, and the run has no account"
            yield AuditFinding(books.run_id, entry.seq, "ledger_missing", what)
            return


def _unread(run_id: RunId, problem: str) -> AuditFinding:
    return AuditFinding(
        run_id, 0, "rows_unreadable", f"the database can't read its rows ({problem})"
    )


def _broken_links(books: Books) -> set[int]:
    """Positions `i` at which entry `i` does not continue entry `i` - 1.

    A gap in the sequence is not a broken link: missing entries are reported separately.
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
    """Whether the erasure mark is one that `erase` writes: a digest in place of a payload."""
    return (
        entry.sealed is None
        and entry.erased is not None
        and len(entry.erased) in (HASH_BYTES, 2 * HASH_BYTES)
        and any(entry.erased)
    )


def _without_receipt(books: Books) -> Iterator[AuditFinding]:
    """Entries with other texts than their hashes cover, if the receipt of an erasure does not say so."""
    redacted = [entry for entry in books.entries if entry.is_redacted]
    if not redacted:
        return
    try:
        listed = {} if books.receipt is None else read_erasure(books.receipt).redacted
    except PerdureError as error:
        yield AuditFinding(books.run_id, redacted[0].seq, "receipt_unreadable", error.what)
        return
    for entry in redacted:
        if listed.get(entry.seq) != sha256(entry.body.encode()).hexdigest():
            what = "its texts were erased, and no receipt has what it is now"
            yield AuditFinding(books.run_id, entry.seq, "entry_altered", what)


def _missing(books: Books) -> Iterator[AuditFinding]:
    """Missing entries, by the count in the run's row, and surplus ones."""
    expected = books.ending.seq if books.ending is not None else 0
    due = 0
    for entry in books.entries:
        if entry.seq > due:
            yield _gap(books.run_id, due, entry.seq)
        if entry.seq < 0 or (books.ending is not None and entry.seq >= expected):
            what = f"the run counts {expected} entries only"
            yield AuditFinding(books.run_id, entry.seq, "entry_surplus", what)
        due = max(due, entry.seq + 1)
    if due < expected:
        yield _gap(books.run_id, due, expected)
    if not books.entries and books.ending is not None and not expected and not _has_input(books):
        yield AuditFinding(books.run_id, 0, "entry_missing", "a run without any entry")


def _has_input(books: Books) -> bool:
    """Whether the store has the input of a run that has not begun."""
    return any(message.kind == START for message in books.outstanding.messages.values())


def _gap(run_id: RunId, first: int, end: int) -> AuditFinding:
    """One finding for a gap of any width."""
    what = "there is no such entry" if end == first + 1 else f"nor any up to entry {end - 1}"
    return AuditFinding(run_id, first, "entry_missing", what)
