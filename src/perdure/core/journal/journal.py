"""The journal of one run: the only function that appends, and the result that the store commits."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

from perdure.core.errors import (
    CorruptJournal,
    InputError,
    InvariantViolation,
    LedgerError,
    LedgerOverflow,
    SemaphoreUnderflow,
)
from perdure.core.ids import RunId
from perdure.core.journal import events as e
from perdure.core.journal.checker import BEGUN_AND_OPEN, BY_EVENT, Broken, broken_by
from perdure.core.journal.entry import NONCE_BYTES, Entry, body_of, genesis, seal
from perdure.core.journal.guards import GUARDS
from perdure.core.journal.postings import FIRST_LEG, TABLE, WHOLE_MESSAGE, Postings
from perdure.core.journal.state import ABSENT, FOLD, State, Status
from perdure.core.ledger import ENTRY, LEG1_DONE, WORK_DONE, AccountId, located, post_to
from perdure.core.limits import MAX_SEQUENCE


class Appended(msgspec.Struct, frozen=True, gc=False):
    """What one append adds to the books, committed as a whole or not at all.

    The decision was made on `semaphore_before`: the store compares it with the locked row.
    """

    run_id: RunId
    entries: tuple[Entry, ...]
    postings: dict[AccountId, int]
    seq_before: int
    semaphore_before: int
    semaphore_after: int
    status: Status
    head: bytes

    @property
    def head_before(self) -> bytes:
        """The hash that the first entry is chained to."""
        return self.entries[0].prev if self.entries else self.head

    @property
    def seq_after(self) -> int:
        return self.seq_before + len(self.entries)


class Journal:
    """A run's journal in memory: its state and its head, not its entries.

    `seq` is the number of entries and the sequence number of the next one; `head` is the hash of the last.
    """

    __slots__ = ("head", "run_id", "seq", "state")

    def __init__(self, run_id: RunId) -> None:
        self.run_id = run_id
        self.state = State()
        self.seq = 0
        self.head = genesis(run_id)

    def append(self, events: Sequence[e.Event], at_ms: int, entropy: bytes) -> Appended:
        """Append all events, or raise and change nothing.

        `entropy` holds at least 16 fresh random bytes for each event.
        """
        if not 0 <= at_ms < 1 << 63:
            raise InputError(f"at_ms {at_ms} does not fit 63 bits", "pass milliseconds since 1970")
        if len(entropy) < NONCE_BYTES * len(events):
            raise InputError(
                f"{len(entropy)} random bytes for {len(events)} events",
                f"pass at least {NONCE_BYTES} fresh bytes for each",
            )
        return _append(self, events, at_ms, entropy)

    def _admit(self, event: e.Event, seq: int, postings: dict[AccountId, int], remedy: str) -> None:
        """Check an event and fold it in: invariants, guards, digits, semaphore."""
        state = self.state
        check, guard, effect, fold = _RULES[type(event)]
        broken: Broken = ()
        if state.status not in BEGUN_AND_OPEN:
            broken = broken_by(state, seq, seq, event)
        elif check is not None:
            broken = check(state, event)
        if broken:
            raise _violation(self.run_id, seq, broken, remedy)
        if guard is not None:
            guard(state, event)
        if effect is not None:
            posted, delta = effect(event)
            self._post(posted, postings)
            if delta:
                semaphore = state.semaphore + delta
                if not 0 <= semaphore <= MAX_SEQUENCE:
                    raise self._miscounted(event, delta)
                state.semaphore = semaphore
        if fold is not None:
            fold(state, event)

    def _post(self, posted: Postings, postings: dict[AccountId, int]) -> None:
        balances = self.state.balances
        for account, increment in posted:
            try:
                balances[account] = post_to(account, balances.get(account, 0), increment)
            except LedgerError as error:
                raise self._located(error, account) from error
            postings[account] = postings.get(account, 0) + increment

    def _take_back(self, mark: tuple[Any, ...], postings: dict[AccountId, int]) -> None:
        """Undo the events and postings since the mark."""
        self.state.roll_back(mark)
        balances = self.state.balances
        for account, increment in postings.items():
            balances[account] -= increment
            if not balances[account]:
                del balances[account]

    def _miscounted(self, event: e.Event, delta: int) -> LedgerError:
        """The error for a semaphore outside its range."""
        if delta < 0:
            return SemaphoreUnderflow(
                f"{type(event).__name__} closes {-delta} obligations of run {self.run_id!r}, "
                f"but {self.state.semaphore} are open",
                "close each obligation once",
            )
        return LedgerOverflow(
            f"run {self.run_id!r} would have {self.state.semaphore + delta} open obligations",
            f"at most {MAX_SEQUENCE:,} may be open at once",
        )

    def _located(self, error: LedgerError, account: AccountId) -> LedgerError:
        kind, _, name = account.partition(":")
        place = f"{kind} {name!r} of run {self.run_id!r}"
        return located(error, place, f"see engine.handle('{self.run_id}').describe()")

    def replay(self, entries: Iterable[Entry]) -> list[e.Event]:
        """Fold stored entries in, with the checks of `append`. Returns their events.

        Raises on the first entry that does not continue the chain, and keeps the state before it: readers halt on
        a gap. A change to the last entry shows only in `head`.
        """
        events: list[e.Event] = []
        for entry in entries:
            if entry.seq == self.seq and entry.prev != self.head:
                raise CorruptJournal(
                    f"entry {entry.seq} of run {self.run_id!r} does not continue the hash chain",
                    _CHANGED,
                )
            mark, postings = self.state.mark(), dict[AccountId, int]()
            event = entry.event
            try:
                if entry.seq != self.seq:
                    broken = broken_by(self.state, self.seq, entry.seq, event)
                    raise _violation(self.run_id, entry.seq, broken, _CHANGED)
                if not _is_admitted(self.state, event, postings):
                    self._admit(event, entry.seq, postings, _CHANGED)
            except BaseException:
                self._take_back(mark, postings)
                raise
            self.seq = entry.seq + 1
            self.head = entry.hash
            events.append(event)
        self.state.settle()
        return events


def append_reference(
    journal: Journal, events: Sequence[e.Event], at_ms: int, entropy: bytes
) -> Appended:
    """The reference implementation of appending: check all events, then seal them; undo everything on an error."""
    state = journal.state
    mark, semaphore_before = state.mark(), state.semaphore
    postings: dict[AccountId, int] = {}
    try:
        for seq, event in enumerate(events, journal.seq):
            journal._admit(event, seq, postings, _ENGINE_BUG)
        entries, head = seal(journal.seq, at_ms, events, journal.head, entropy)
    except BaseException:
        journal._take_back(mark, postings)
        raise
    appended = Appended(
        journal.run_id,
        entries,
        postings,
        journal.seq,
        semaphore_before,
        state.semaphore,
        state.status,
        head,
    )
    journal.seq += len(entries)
    journal.head = head
    state.settle()
    return appended


_RULES: Final = {
    event: (BY_EVENT.get(event), GUARDS[event], TABLE[event], FOLD[event]) for event in e.EVENTS
}
"""Checker, guard, postings and fold of each event in one lookup, for the hot path; `None`: nothing to do."""

_ENGINE_BUG: Final = "report a bug of the engine; nothing was appended"
_CHANGED: Final = "run `verify` to find what was changed, and restore the row from a backup"


def _violation(
    run_id: RunId, seq: int, broken: Sequence[tuple[str, str]], remedy: str
) -> InvariantViolation:
    what = "; ".join(f"{name}: {detail}" for name, detail in broken)
    return InvariantViolation(
        tuple(name for name, _ in broken),
        f"{what} (entry {seq} of run {run_id!r})",
        remedy,
    )


def native_names(*, instructions: bool = True) -> dict[str, object]:
    """What the native append looks up in the reference implementation: classes, statuses, digits.

    `instructions`: it may use the processor's SHA-256 instructions.
    """
    return {
        "instructions": instructions,
        **{event.__name__: event for event in e.EVENTS},
        **{kind.value: kind for kind in (e.AwaitKind.SINGLE, e.AwaitKind.ANY, e.AwaitKind.ALL)},
        **{status.value: status for status in Status},
        "Carrier": e.Carrier,
        "Posting": e.Posting,
        "State": State,
        "Journal": Journal,
        "Entry": Entry,
        "Appended": Appended,
        "function_kind": e.InvokeKind.FUNCTION,
        "on_queue": e.InvokePlace.QUEUE,
        "append_reference": append_reference,
        "body_of": body_of,
        "absent": ABSENT,
        "remedy": _ENGINE_BUG,
        "most_open": MAX_SEQUENCE,
        "first_leg": FIRST_LEG,
        "leg1_done": LEG1_DONE,
        "entry_digit": ENTRY,
        "work_done": WORK_DONE,
        "whole_message": WHOLE_MESSAGE,
    }


def _never_admit(*_: object) -> bool:
    """Without the native module every event takes the reference implementation."""
    return False


_append: Callable[[Journal, Sequence[e.Event], int, bytes], Appended] = append_reference
_is_admitted: Callable[[State, e.Event, dict[AccountId, int]], bool] = _never_admit
try:
    # `_quick` is the native append, compiled from `compiled/`.
    from perdure.core.journal import _quick
except ImportError:
    pass  # not compiled here; the reference implementation does the same
else:
    _quick.adopt(native_names())  # what it returns, a test checks to be nothing
    _append, _is_admitted = _quick.append, _quick.admit

is_compiled = _append is not append_reference
"""Whether the native append is in use."""
