"""Every error that Perdure raises on purpose: one tree, a stable code each.

    PerdureError
    ├── InputError                 the caller's value is wrong; nothing was changed
    │   ├── InvalidId              an id that Perdure did not make
    │   ├── InvalidUrl             a store URL that names no store
    │   ├── GuidReused             a message GUID of one run, used for another
    │   ├── DepthExceeded          a call tree deeper than the limit
    │   ├── PayloadTooLarge        a payload over its limit
    │   ├── NotEncodable           a value that has no faithful JSON form
    │   ├── NotDecodable           bytes that are not a value of the wanted type
    │   ├── DuplicateName          two tasks of one name, or two workflows of one name and version
    │   ├── UnknownName            a program or task that this process does not have
    │   ├── GraphInvalid           a graph that breaks rules: all of them at once
    │   │   └── CannotCompile      a function whose source can't be made a graph
    │   ├── NotDeterministic       workflow code that reads a clock, draws randomness, does I/O
    │   ├── OutsideRun             a verb that needs a run, called where there is none
    │   ├── CallReused             a Call that was awaited before
    │   ├── NeverAwaited           a Call that was made and forgotten
    │   ├── ForeignAwait           a workflow that awaits something that is not durable
    │   ├── JoinSetClosed          a submit to a join set that was awaited
    │   ├── KeyReused              a start key that is taken by a run with other arguments
    │   ├── VersionExists          a version of a program that was deployed with other content
    │   ├── UnknownVersion         a version of a program that was not deployed
    │   ├── NotActive              a version of a graph that new runs can't be of
    │   ├── UnreadableProgram      a deployed graph that this Perdure does not understand
    │   ├── UnknownStep            a step that the run does not have, or that waits for nothing
    │   ├── ForbiddenStatement     SQL that a transaction of the user's may not execute
    │   ├── ExpressionProblem      an expression that is not of the language of graphs
    │   └── RunClosed              the run is over and takes nothing more
    ├── Outcome                    what became of a step or a run
    │   ├── TaskFailed             a task's exception that can't be rebuilt here
    │   │   └── RunFailed          a run's exception that can't be rebuilt here
    │   ├── StepCancelled          a step that was cancelled before it had a result
    │   ├── StepInDoubt            a step that had begun when its host died, and is not begun again
    │   ├── NotDone                a reconcile function's word: the effect did not happen
    │   ├── RunCancelled           the run was cancelled
    │   ├── RunInterrupted         the run was ended by an interrupt activity
    │   ├── ResponseError          a step of a graph that answered with the code of an error
    │   └── RunDiverged            the program is not the one that wrote the journal
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
    │   ├── RunEnded               a chunk for a run that is over
    │   ├── StaleToken             the work was claimed again by another host
    │   └── BundleRefused          the database refused a row of the bundle
    │       └── ReadinessOverflow  a node of a graph, reached more often than it has predecessors
    ├── TransactionError           a transaction of the user's that can't go on; nothing of it was written
    │   ├── StatementFailed        the database refused a statement of it
    │   ├── TransactionOver        used after its end, or after a statement of it failed
    │   ├── TransactionInterrupted ended by the database, and by no fault of its own
    │   └── NotCommitted           a question about a run that is not committed yet
    ├── EvaluationError            an expression that has no value here, whatever Python would say
    │   └── ExpressionTooCostly    it would take too long, or make something too large
    ├── OperationError             an operation of `perdure.operations`
    │   ├── OperationFailed        a participant crashed, or somebody aborted it
    │   │   └── ParticipantFenced  this participant was taken for dead
    │   ├── OperationOver          it is completed, and takes nothing more
    │   ├── UnknownOperation       there is no operation of that id
    │   ├── CallsOpen              it can't be completed while calls are under way
    │   ├── CallOver               a call that has ended, or has no result yet
    │   ├── CallFailed             a call that has no result, and never will
    │   ├── WorkerFailed           a process that ended without a result
    │   └── CorruptOperation       a ledger that can't be read
    ├── EngineClosed               used after it was stopped
    └── StoreError                 the store itself
        ├── StoreUnavailable       can't be opened or reached
        ├── SchemaTooNew           written by a newer Perdure
        ├── SchemaTooOld           written by an older Perdure, where it is not to be changed
        ├── NotOurDatabase         somebody else's tables
        ├── ForeignSqlite          a second SQLite library has the file open in this process
        └── StoreClosed            used after close

An error says what is wrong and which value, then what to do next.
"""

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from perdure.core.graph.model import Problem
    from perdure.core.operations.data import OperationFailedInfo


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
    """The caller's value is wrong; nothing was changed."""

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


class DuplicateName(InputError):
    code = "duplicate-name"


class UnknownName(InputError):
    code = "unknown-name"


class GraphInvalid(InputError):
    """A graph that can't be run as it is. `problems` are all that were found, in the order of their places."""

    code = "graph-invalid"

    def __init__(self, what: str, remedy: str, problems: "tuple[Problem, ...]") -> None:
        super().__init__(what, remedy)
        self.args = (what, remedy, problems)
        self.problems = problems


class NotDeterministic(InputError):
    code = "not-deterministic"


class OutsideRun(InputError):
    code = "outside-run"


class CallReused(InputError):
    code = "call-reused"


class NeverAwaited(InputError):
    code = "never-awaited"


class ForeignAwait(InputError):
    code = "foreign-await"


class JoinSetClosed(InputError):
    code = "join-set-closed"


class KeyReused(InputError):
    """`run_id` is the run that holds the key."""

    code = "key-reused"

    def __init__(self, run_id: str, what: str, remedy: str) -> None:
        super().__init__(what, remedy)
        self.args = (run_id, what, remedy)
        self.run_id = run_id


class VersionExists(InputError):
    """A version of a program means one thing for ever."""

    code = "version-exists"


class UnknownVersion(InputError):
    """A version of a program that was not deployed."""

    code = "unknown-version"


class NotActive(InputError):
    """A graph is deployed, and new runs can't be of that version of it."""

    code = "not-active"


class UnreadableProgram(InputError):
    """A newer Perdure deployed the graph, and this one does not understand it."""

    code = "unreadable-program"


class UnknownStep(InputError):
    """A run has no such step, or it waits for no answer."""

    code = "unknown-step"


class ForbiddenStatement(InputError):
    """SQL that a transaction may not execute: Perdure's own tables, or what would end the transaction."""

    code = "forbidden-statement"


class ExpressionProblem(InputError):
    """`lineno` (from 1) and `column` (from 0) say where in the text or the source it is."""

    code = "expression-problem"

    def __init__(self, what: str, remedy: str, lineno: int, column: int) -> None:
        super().__init__(what, remedy)
        self.args = (what, remedy, lineno, column)
        self.lineno = lineno
        self.column = self.col_offset = column  # the second is its name in syntax trees


class CannotCompile(GraphInvalid):
    """A function that can't be made a graph. `problems` are in the order of the lines."""

    code = "cannot-compile"


class RunClosed(InputError):
    """The run is over and takes nothing more."""

    code = "run-closed"


class Outcome(PerdureError):
    code = "outcome"


class TaskFailed(Outcome):
    """`type_name`, `message` and `traceback` are those of the exception, as text."""

    code = "task-failed"

    def __init__(
        self, what: str, remedy: str, type_name: str, message: str, traceback: str
    ) -> None:
        super().__init__(what, remedy)
        self.args = (what, remedy, type_name, message, traceback)
        self.type_name = type_name
        self.message = message
        self.traceback = traceback


class RunFailed(TaskFailed):
    """A run raised an exception that can't be rebuilt here; its parts are those of `TaskFailed`."""

    code = "run-failed"


class StepCancelled(Outcome):
    """The step was cancelled before it had a result."""

    code = "step-cancelled"


class StepInDoubt(Outcome):
    """The step had begun when its host died, and is not begun again; its effect may have happened."""

    code = "step-in-doubt"


class NotDone(Outcome):
    """Raised by a reconcile function (`@task(on_doubt=...)`): the effect did not happen, so the task runs."""

    code = "not-done"

    def __init__(
        self, what: str = "the effect did not happen", remedy: str = "let the task run"
    ) -> None:
        super().__init__(what, remedy)


class RunCancelled(Outcome):
    """The run was cancelled, and has no result."""

    code = "run-cancelled"


class RunInterrupted(Outcome):
    """A run was ended by an interrupt activity. `status` is the code that it gave."""

    code = "run-interrupted"

    def __init__(self, what: str, remedy: str, status: int = 410) -> None:
        super().__init__(what, remedy)
        self.args = (what, remedy, status)
        self.status = status


class ResponseError(Outcome):
    """A step of a graph answered with the code of an error."""

    code = "response-error"

    def __init__(
        self, what: str, remedy: str = "add an edge for errors, or mend what answers so"
    ) -> None:
        super().__init__(what, remedy)


class RunDiverged(Outcome):
    """The run waits: its program is not the one that wrote its journal."""

    code = "run-diverged"


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
    """The store has no run of that id."""

    code = "unknown-run"


class RunEnded(CommitRejected):
    """The run is over: what comes for its streams comes too late."""

    code = "run-ended"


class StaleToken(CommitRejected):
    code = "stale-token"


class BundleRefused(CommitRejected):
    code = "bundle-refused"


class ReadinessOverflow(BundleRefused):
    """A node's predecessors were counted wrong: more were resolved than it has, or their number changed."""

    code = "readiness-overflow"


class TransactionError(PerdureError):
    """A transaction that can't go on. Nothing of it was written."""

    code = "transaction"


class StatementFailed(TransactionError):
    """The database refused a statement. The driver's own error is its cause."""

    code = "statement-failed"


class TransactionOver(TransactionError):
    """The transaction was committed or rolled back, or will be rolled back."""

    code = "transaction-over"


class TransactionInterrupted(TransactionError):
    """The database ended the transaction: it may be begun again as it was."""

    code = "transaction-interrupted"


class NotCommitted(TransactionError):
    """The transaction that a run or a question belongs to is not committed yet."""

    code = "not-committed"


class EvaluationError(PerdureError):
    """An expression met a value that it does not compute with. Errors that Python has a name for are Python's."""

    code = "evaluation"


class ExpressionTooCostly(EvaluationError):
    """The evaluation was given up before it took too long, or made something too large."""

    code = "expression-too-costly"


class OperationError(PerdureError):
    """An operation of `perdure.operations` that can not do what it was asked to."""

    code = "operation"


class OperationFailed(OperationError):
    """A participant crashed, or somebody aborted the operation: its clean-up has begun. `info` says why."""

    code = "operation-failed"

    def __init__(self, what: str, remedy: str, info: "OperationFailedInfo") -> None:
        super().__init__(what, remedy)
        self.args = (what, remedy, info)
        self.info = info


class ParticipantFenced(OperationFailed):
    """This participant was not heard of for too long and taken for dead: its calls were given up."""

    code = "participant-fenced"


class OperationOver(OperationError):
    """The operation is completed, or over and no backup of it kept: it takes nothing more."""

    code = "operation-over"


class UnknownOperation(OperationError):
    """There is no operation of that id."""

    code = "unknown-operation"


class CallsOpen(OperationError):
    """The operation can't be completed while calls are under way."""

    code = "calls-open"


class CallOver(OperationError):
    """The call has ended already, or has no result yet."""

    code = "call-over"


class CallFailed(OperationError):
    """The call has no result. What its work raised is the cause."""

    code = "call-failed"


class WorkerFailed(OperationError):
    """A process ended without a result; `exit_code` is negative if a signal ended it."""

    code = "worker-failed"

    def __init__(self, what: str, remedy: str, exit_code: int) -> None:
        super().__init__(what, remedy)
        self.args = (what, remedy, exit_code)
        self.exit_code = exit_code


class CorruptOperation(OperationError):
    """The ledger of an operation that can't be read."""

    code = "corrupt-operation"


class EngineClosed(PerdureError):
    code = "engine-closed"


class StoreError(PerdureError):
    code = "store"


class StoreUnavailable(StoreError):
    code = "store-unavailable"


class SchemaTooNew(StoreError):
    code = "schema-too-new"


class SchemaTooOld(StoreError):
    code = "schema-too-old"


class NotOurDatabase(StoreError):
    code = "not-our-database"


class ForeignSqlite(StoreError):
    code = "foreign-sqlite"


class StoreClosed(StoreError):
    code = "store-closed"
