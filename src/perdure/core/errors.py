"""Every error that Perdure raises on purpose: one tree, a stable code each.

    PerdureError
    ├── InputError                 the caller's value is wrong; nothing was changed
    │   ├── InvalidId              an id that Perdure did not make
    │   ├── InvalidUrl             a store URL that names no store
    │   ├── GuidReused             a message GUID of one run, used for another
    │   ├── DepthExceeded          a call tree deeper than the limit
    │   ├── PayloadTooLarge        a payload over its limit
    │   ├── NotEncodable           a value that has no faithful JSON form
    │   └── NotDecodable           bytes that are not a value of the wanted type
    ├── LedgerError                a posting that the digits do not allow
    │   ├── LedgerDecrement        increments only
    │   ├── LedgerOverflow         a field would carry into its neighbour
    │   │   ├── AttemptsExhausted  the hundredth entry attempt
    │   │   └── EntriesExhausted   the entry after 99,999,999
    │   ├── LedgerOrder            a digit whose precondition is not posted yet, or posted already
    │   └── SemaphoreUnderflow     more obligations closed than were open
    ├── JournalError
    │   ├── InvariantViolation     one of the 20 invariants, by name
    │   ├── IllegalAppend          a state guard refused the event
    │   └── CorruptJournal         stored entries that can't be read back
    ├── CommitRejected             this bundle was not written; others were
    │   ├── StaleFence             the run belongs to somebody else now
    │   ├── RunExists              the start key is taken
    │   ├── UnknownRun             no such run
    │   ├── StaleToken             the work was claimed again by another host
    │   └── BundleRefused          the database refused a row of the bundle
    └── StoreError                 the store itself
        ├── StoreUnavailable       can't be opened or reached
        ├── SchemaTooNew           written by a newer Perdure
        ├── NotOurDatabase         somebody else's tables
        ├── ForeignSqlite          a second SQLite library has the file open in this process
        └── StoreClosed            used after close

An error says what is wrong and which value, then what to do next.
"""

from typing import ClassVar


class PerdureError(Exception):
    """Base of all. `code` never changes once released; the text may."""

    code: ClassVar[str] = "perdure"

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what, remedy)
        self.what = what
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.what}: {self.remedy}"


class InputError(PerdureError):
    code = "input"


class InvalidId(InputError):
    code = "invalid-id"


class InvalidUrl(InputError):
    code = "invalid-url"


class GuidReused(InputError):
    code = "guid-reused"


class DepthExceeded(InputError):
    code = "depth-exceeded"


class PayloadTooLarge(InputError):
    code = "payload-too-large"


class NotEncodable(InputError):
    code = "not-encodable"


class NotDecodable(InputError):
    code = "not-decodable"


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


class CommitRejected(PerdureError):
    code = "commit-rejected"


class StaleFence(CommitRejected):
    code = "stale-fence"


class RunExists(CommitRejected):
    """`run_id` is the run that holds the key."""

    code = "run-exists"

    def __init__(self, run_id: str, what: str, remedy: str) -> None:
        super().__init__(what, remedy)
        self.args = (run_id, what, remedy)
        self.run_id = run_id


class UnknownRun(CommitRejected):
    code = "unknown-run"


class StaleToken(CommitRejected):
    code = "stale-token"


class BundleRefused(CommitRejected):
    code = "bundle-refused"


class StoreError(PerdureError):
    code = "store"


class StoreUnavailable(StoreError):
    code = "store-unavailable"


class SchemaTooNew(StoreError):
    code = "schema-too-new"


class NotOurDatabase(StoreError):
    code = "not-our-database"


class ForeignSqlite(StoreError):
    code = "foreign-sqlite"


class StoreClosed(StoreError):
    code = "store-closed"
