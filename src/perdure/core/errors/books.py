"""What the ledger and the journal refuse."""

from perdure.core.errors.base import PerdureError


class LedgerError(PerdureError):
    code = "ledger"


class LedgerDecrement(LedgerError):
    code = "ledger-decrement"


class LedgerOverflow(LedgerError):
    code = "ledger-overflow"


class AttemptsExhausted(LedgerOverflow):
    code = "attempts-exhausted"


class EntriesExhausted(LedgerOverflow):
    code = "entries-exhausted"


class LedgerOrder(LedgerError):
    code = "ledger-order"


class SemaphoreUnderflow(LedgerError):
    code = "semaphore-underflow"


class JournalError(PerdureError):
    code = "journal"


class InvariantViolation(JournalError):
    """`names` are the violated invariants as the source spells them (`JS-3 awaited_requires_member`)."""

    code = "invariant-violation"

    def __init__(self, names: tuple[str, ...], what: str, remedy: str) -> None:
        super().__init__(what, remedy)
        self.args = (names, what, remedy)
        self.names = names


class IllegalAppend(JournalError):
    """`guard` is the name of the state guard that refused."""

    code = "illegal-append"

    def __init__(self, guard: str, what: str, remedy: str) -> None:
        super().__init__(what, remedy)
        self.args = (guard, what, remedy)
        self.guard = guard


class CorruptJournal(JournalError):
    code = "corrupt-journal"


class BooksDiffer(JournalError):
    code = "books-differ"
