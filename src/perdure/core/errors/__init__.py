"""Every error that Perdure raises on purpose: one tree, a stable code each.

    PerdureError
    ├── InputError                 the caller's value is wrong; nothing was changed
    │   ├── InvalidId              an id that Perdure did not make
    │   ├── InvalidUrl             a store URL that names no store
    │   ├── GuidReused             a message GUID of one run, used for another
    │   ├── DepthExceeded          a call tree deeper than the limit
    │   ├── TurnTooLong            a workflow that calls too many verbs without waiting
    │   ├── PayloadTooLarge        a payload over its limit
    │   ├── NotEncodable           a value that has no faithful JSON form
    │   │   └── SecretExposed      a value that holds a secret
    │   ├── UnknownSecret          no provider has that secret for the scope of the run
    │   ├── NoArtifactStore        the engine was given no place for artifacts
    │   ├── NotDecodable           bytes that are not a value of the wanted type
    │   ├── DuplicateName          two tasks of one name, or two workflows of one name and version
    │   ├── UnknownName            a program or task that this process does not have
    │   ├── GraphInvalid           a graph that breaks rules: all of them at once
    │   │   └── CannotCompile      a function whose source can't be made a graph
    │   ├── NotDeterministic       workflow code that reads a clock, draws randomness, does I/O
    │   ├── OutsideRun             a verb that needs a run, called where there is none
    │   ├── CallReused             a Call that was awaited before
    │   ├── NeverAwaited           a Call, a sleep or a receive that was never awaited
    │   ├── ForeignAwait           a workflow that awaits something that is not durable
    │   ├── JoinSetClosed          a submit to a join set that was awaited
    │   ├── KeyReused              a start key that is taken by a run with other arguments
    │   ├── KeySpent               a start key whose run failed or was cancelled
    │   ├── SignalReused           the id of a signal that was sent before with another value
    │   ├── VersionExists          a version of a program that was deployed with other content
    │   ├── UnknownBus             an event bus that the store does not have
    │   ├── UnknownSchedule        a schedule that the store does not have
    │   ├── UnknownVersion         a version of a program that was not deployed
    │   ├── NotActive              a version of a graph that new runs can't be of
    │   ├── UnreadableProgram      a deployed graph that this Perdure does not understand
    │   ├── ForkDiverged           a fork whose program does not repeat what the fork keeps
    │   ├── UnknownStep            a step that the run does not have, or that waits for nothing
    │   ├── ForbiddenStatement     SQL that a user transaction may not execute
    │   ├── ExpressionProblem      an expression outside the subset of Python for graphs
    │   └── RunClosed              the run has ended and accepts nothing more
    ├── Outcome                    the outcome of a step or a run
    │   ├── TaskFailed             a task's exception that can't be rebuilt here
    │   │   └── RunFailed          a run's exception that can't be rebuilt here
    │   ├── StepCancelled          a step that was cancelled before it had a result
    │   ├── StepInDoubt            a step that was running when its host died, and is not repeated
    │   ├── NotDone                raised by a reconcile function: the effect did not happen
    │   ├── RunCancelled           the run was cancelled
    │   ├── RunInterrupted         the run was ended by an interrupt activity
    │   ├── RequestRejected        a run rejected a request
    │   ├── RequestUnanswered      a run ended without an answer to a request
    │   ├── ResponseError          a step of a graph that responded with an error code
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
    │   ├── CorruptJournal         stored entries that can't be read back
    │   └── BooksDiffer            a run's row or ledger that its journal contradicts
    ├── CommitRejected             this bundle was not written; others were
    │   ├── StaleFence             another host owns the run now
    │   ├── RunExists              the start key is taken
    │   │   └── RunJoined          the start joined the run that holds its limit
    │   ├── UnknownRun             no such run
    │   ├── RunEnded               a chunk for a run that is over
    │   ├── StaleToken             the work was claimed again by another host
    │   └── BundleRefused          the database refused a row of the bundle
    │       └── ReadinessOverflow  a node of a graph, reached more often than it has predecessors
    ├── TransactionError           a user transaction that can't continue; it was rolled back
    │   ├── StatementFailed        the database refused a statement
    │   ├── TransactionOver        used after its end, or after a failed statement
    │   ├── TransactionInterrupted ended by the database; it may be repeated
    │   └── NotCommitted           a question about a run that is not committed yet
    ├── ActRefused                 an operator act that was refused before the run got it
    │   ├── Denied                 the authorizer denied it
    │   └── TooManyActs            too many acts wait for the run
    ├── LimitReached               a limit refuses the start; it says when to try again
    ├── BusError                   an event that was not published
    │   ├── BusRefused             the bus refuses this event
    │   └── BusUnavailable         the bus takes no events now
    ├── EvaluationError            an expression that can't be evaluated on these values
    │   └── ExpressionTooCostly    it would take too long, or make something too large
    ├── OperationError             an operation of `perdure.operations`
    │   ├── OperationFailed        a participant crashed, or the operation was aborted
    │   │   └── ParticipantFenced  this participant was declared dead
    │   ├── OperationOver          the operation has ended
    │   ├── UnknownOperation       there is no operation of that id
    │   ├── CallsOpen              it can't be completed while calls are under way
    │   ├── CallOver               a call that has ended, or has no result yet
    │   ├── CallFailed             a call that ended without a result
    │   ├── WorkerFailed           a process that ended without a result
    │   │   └── WorkerTimedOut     a process that gave no result in time
    │   └── CorruptOperation       a ledger that can't be read
    ├── EngineClosed               used after it was stopped
    ├── UsedAfterFork              opened by the parent of this forked process
    └── StoreError                 the store itself
        ├── StoreUnavailable       can't be opened or reached
        ├── ArtifactDamaged        an artifact that is not what was stored
        ├── ArtifactMissing        an artifact that is not in its store
        ├── StoreDamaged           the database can't read its own rows
        ├── SchemaTooNew           written by a newer Perdure
        │   └── StoreMoved         moved to another store, or taking part in a move
        ├── SchemaTooOld           written by an older Perdure, and migration is not allowed here
        ├── NotOurDatabase         a database with tables of another program
        ├── ForeignSqlite          a second SQLite library has the file open in this process
        └── StoreClosed            used after close

An error says what is wrong and which value, then what to do next.
"""

from perdure.core.errors.acts import ActRefused, Denied, TooManyActs
from perdure.core.errors.admission import LimitReached
from perdure.core.errors.base import PerdureError
from perdure.core.errors.books import (
    AttemptsExhausted,
    BooksDiffer,
    CorruptJournal,
    EntriesExhausted,
    IllegalAppend,
    InvariantViolation,
    JournalError,
    LedgerDecrement,
    LedgerError,
    LedgerOrder,
    LedgerOverflow,
    SemaphoreUnderflow,
)
from perdure.core.errors.buses import BusError, BusRefused, BusUnavailable
from perdure.core.errors.commits import (
    BundleRefused,
    CommitRejected,
    NotCommitted,
    ReadinessOverflow,
    RunEnded,
    RunExists,
    RunJoined,
    StaleFence,
    StaleToken,
    StatementFailed,
    TransactionError,
    TransactionInterrupted,
    TransactionOver,
    UnknownRun,
)
from perdure.core.errors.evaluation import EvaluationError, ExpressionTooCostly
from perdure.core.errors.inputs import (
    CallReused,
    CannotCompile,
    DepthExceeded,
    DuplicateName,
    ExpressionProblem,
    ForbiddenStatement,
    ForeignAwait,
    ForkDiverged,
    GraphInvalid,
    GuidReused,
    InputError,
    InvalidId,
    InvalidUrl,
    JoinSetClosed,
    KeyReused,
    KeySpent,
    NeverAwaited,
    NoArtifactStore,
    NotActive,
    NotDecodable,
    NotDeterministic,
    NotEncodable,
    OutsideRun,
    PayloadTooLarge,
    RunClosed,
    SecretExposed,
    SignalReused,
    TurnTooLong,
    UnknownBus,
    UnknownName,
    UnknownSchedule,
    UnknownSecret,
    UnknownStep,
    UnknownVersion,
    UnreadableProgram,
    VersionExists,
)
from perdure.core.errors.operations import (
    CallFailed,
    CallOver,
    CallsOpen,
    CorruptOperation,
    OperationError,
    OperationFailed,
    OperationOver,
    ParticipantFenced,
    UnknownOperation,
    WorkerFailed,
    WorkerTimedOut,
)
from perdure.core.errors.outcomes import (
    NotDone,
    Outcome,
    RequestRejected,
    RequestUnanswered,
    ResponseError,
    RunCancelled,
    RunDiverged,
    RunFailed,
    RunInterrupted,
    StepCancelled,
    StepInDoubt,
    TaskFailed,
)
from perdure.core.errors.stores import (
    ArtifactDamaged,
    ArtifactMissing,
    EngineClosed,
    ForeignSqlite,
    NotOurDatabase,
    SchemaTooNew,
    SchemaTooOld,
    StoreClosed,
    StoreDamaged,
    StoreError,
    StoreMoved,
    StoreUnavailable,
    UsedAfterFork,
)

__all__ = [
    "ActRefused",
    "ArtifactDamaged",
    "ArtifactMissing",
    "AttemptsExhausted",
    "BooksDiffer",
    "BundleRefused",
    "BusError",
    "BusRefused",
    "BusUnavailable",
    "CallFailed",
    "CallOver",
    "CallReused",
    "CallsOpen",
    "CannotCompile",
    "CommitRejected",
    "CorruptJournal",
    "CorruptOperation",
    "Denied",
    "DepthExceeded",
    "DuplicateName",
    "EngineClosed",
    "EntriesExhausted",
    "EvaluationError",
    "ExpressionProblem",
    "ExpressionTooCostly",
    "ForbiddenStatement",
    "ForeignAwait",
    "ForeignSqlite",
    "ForkDiverged",
    "GraphInvalid",
    "GuidReused",
    "IllegalAppend",
    "InputError",
    "InvalidId",
    "InvalidUrl",
    "InvariantViolation",
    "JoinSetClosed",
    "JournalError",
    "KeyReused",
    "KeySpent",
    "LedgerDecrement",
    "LedgerError",
    "LedgerOrder",
    "LedgerOverflow",
    "LimitReached",
    "NeverAwaited",
    "NoArtifactStore",
    "NotActive",
    "NotCommitted",
    "NotDecodable",
    "NotDeterministic",
    "NotDone",
    "NotEncodable",
    "NotOurDatabase",
    "OperationError",
    "OperationFailed",
    "OperationOver",
    "Outcome",
    "OutsideRun",
    "ParticipantFenced",
    "PayloadTooLarge",
    "PerdureError",
    "ReadinessOverflow",
    "RequestRejected",
    "RequestUnanswered",
    "ResponseError",
    "RunCancelled",
    "RunClosed",
    "RunDiverged",
    "RunEnded",
    "RunExists",
    "RunFailed",
    "RunInterrupted",
    "RunJoined",
    "SchemaTooNew",
    "SchemaTooOld",
    "SecretExposed",
    "SemaphoreUnderflow",
    "SignalReused",
    "StaleFence",
    "StaleToken",
    "StatementFailed",
    "StepCancelled",
    "StepInDoubt",
    "StoreClosed",
    "StoreDamaged",
    "StoreError",
    "StoreMoved",
    "StoreUnavailable",
    "TaskFailed",
    "TooManyActs",
    "TransactionError",
    "TransactionInterrupted",
    "TransactionOver",
    "TurnTooLong",
    "UnknownBus",
    "UnknownName",
    "UnknownOperation",
    "UnknownRun",
    "UnknownSchedule",
    "UnknownSecret",
    "UnknownStep",
    "UnknownVersion",
    "UnreadableProgram",
    "UsedAfterFork",
    "VersionExists",
    "WorkerFailed",
    "WorkerTimedOut",
]
