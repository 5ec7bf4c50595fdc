import copy
import inspect
import pickle
import re

import pytest

from perdure.core import errors
from perdure.core.errors import IllegalAppend, InvariantViolation, PerdureError, RunExists

CLASSES = [
    item
    for item in vars(errors).values()
    if isinstance(item, type) and issubclass(item, PerdureError)
]

RELEASED = {
    "PerdureError": "perdure",
    "InputError": "input",
    "InvalidId": "invalid-id",
    "InvalidUrl": "invalid-url",
    "GuidReused": "guid-reused",
    "DepthExceeded": "depth-exceeded",
    "TurnTooLong": "turn-too-long",
    "PayloadTooLarge": "payload-too-large",
    "NotEncodable": "not-encodable",
    "SecretExposed": "secret-exposed",
    "UnknownSecret": "unknown-secret",
    "NoArtifactStore": "no-artifact-store",
    "ArtifactDamaged": "artifact-damaged",
    "ArtifactMissing": "artifact-missing",
    "NotDecodable": "not-decodable",
    "DuplicateName": "duplicate-name",
    "UnknownName": "unknown-name",
    "CannotCompile": "cannot-compile",
    "GraphInvalid": "graph-invalid",
    "NotDeterministic": "not-deterministic",
    "OutsideRun": "outside-run",
    "CallReused": "call-reused",
    "NeverAwaited": "never-awaited",
    "ForeignAwait": "foreign-await",
    "JoinSetClosed": "join-set-closed",
    "KeyReused": "key-reused",
    "KeySpent": "key-spent",
    "SignalReused": "signal-reused",
    "VersionExists": "version-exists",
    "UnknownVersion": "unknown-version",
    "NotActive": "not-active",
    "UnreadableProgram": "unreadable-program",
    "UnknownStep": "unknown-step",
    "ForbiddenStatement": "forbidden-statement",
    "ExpressionProblem": "expression-problem",
    "RunClosed": "run-closed",
    "ActRefused": "act-refused",
    "Denied": "denied",
    "TooManyActs": "too-many-acts",
    "Outcome": "outcome",
    "TaskFailed": "task-failed",
    "RunFailed": "run-failed",
    "StepCancelled": "step-cancelled",
    "StepInDoubt": "step-in-doubt",
    "NotDone": "not-done",
    "RunCancelled": "run-cancelled",
    "RunDiverged": "run-diverged",
    "TransactionError": "transaction",
    "StatementFailed": "statement-failed",
    "TransactionOver": "transaction-over",
    "TransactionInterrupted": "transaction-interrupted",
    "NotCommitted": "not-committed",
    "EvaluationError": "evaluation",
    "ExpressionTooCostly": "expression-too-costly",
    "OperationError": "operation",
    "OperationFailed": "operation-failed",
    "ParticipantFenced": "participant-fenced",
    "OperationOver": "operation-over",
    "UnknownOperation": "unknown-operation",
    "CallsOpen": "calls-open",
    "CallOver": "call-over",
    "CallFailed": "call-failed",
    "WorkerFailed": "worker-failed",
    "WorkerTimedOut": "worker-timed-out",
    "CorruptOperation": "corrupt-operation",
    "EngineClosed": "engine-closed",
    "UsedAfterFork": "used-after-fork",
    "LedgerError": "ledger",
    "LedgerDecrement": "ledger-decrement",
    "LedgerOverflow": "ledger-overflow",
    "AttemptsExhausted": "attempts-exhausted",
    "EntriesExhausted": "entries-exhausted",
    "LedgerOrder": "ledger-order",
    "SemaphoreUnderflow": "semaphore-underflow",
    "JournalError": "journal",
    "InvariantViolation": "invariant-violation",
    "IllegalAppend": "illegal-append",
    "BooksDiffer": "books-differ",
    "CorruptJournal": "corrupt-journal",
    "CommitRejected": "commit-rejected",
    "StaleFence": "stale-fence",
    "RunExists": "run-exists",
    "UnknownRun": "unknown-run",
    "RunEnded": "run-ended",
    "StaleToken": "stale-token",
    "BundleRefused": "bundle-refused",
    "ReadinessOverflow": "readiness-overflow",
    "StoreError": "store",
    "StoreDamaged": "store-damaged",
    "StoreUnavailable": "store-unavailable",
    "SchemaTooNew": "schema-too-new",
    "SchemaTooOld": "schema-too-old",
    "NotOurDatabase": "not-our-database",
    "ForeignSqlite": "foreign-sqlite",
    "StoreClosed": "store-closed",
}
"""Codes that users may rely on. New errors are added; none is removed or changed."""

DRAWN = re.compile(r"^    (?P<bars>[│├└─ ]*)(?P<name>[A-Z]\w+)", re.MULTILINE)


def drawn_tree() -> dict[str, str | None]:
    """Each error in the module's picture, with the error that it hangs from."""
    parents: dict[str, str | None] = {}
    branch: list[str] = []
    for line in DRAWN.finditer(errors.__doc__ or ""):
        depth = len(line["bars"]) // 4
        branch[depth:] = [line["name"]]
        parents[line["name"]] = branch[depth - 1] if depth else None
    return parents


def make(kind: type[PerdureError]) -> PerdureError:
    """An error of that class, with any other arguments."""
    wanted = inspect.signature(kind).parameters.values()
    given = [("a", "b") if "tuple" in str(p.annotation) else f"the {p.name}" for p in wanted]
    error: PerdureError = kind(*given)  # type: ignore[arg-type]
    return error


def test_docstring_draws_the_exception_tree() -> None:
    real = {
        kind.__name__: None if kind is PerdureError else kind.__bases__[0].__name__
        for kind in CLASSES
    }
    assert drawn_tree() == real


def test_every_error_has_one_base() -> None:
    assert [kind for kind in CLASSES if len(kind.__bases__) != 1] == []


def test_codes_are_unique() -> None:
    codes = [kind.code for kind in CLASSES]
    assert len(set(codes)) == len(codes)


def test_every_error_has_a_code_of_its_own() -> None:
    assert [kind for kind in CLASSES if "code" not in vars(kind)] == []


@pytest.mark.parametrize(("name", "code"), RELEASED.items())
def test_code_is_stable(name: str, code: str) -> None:
    assert getattr(errors, name).code == code


@pytest.mark.parametrize("kind", CLASSES)
def test_text_has_the_problem_and_then_the_remedy(kind: type[PerdureError]) -> None:
    error = make(kind)
    assert str(error) == "the what: the remedy"
    assert (error.what, error.remedy) == ("the what", "the remedy")


@pytest.mark.parametrize("kind", CLASSES)
def test_error_survives_pickling(kind: type[PerdureError]) -> None:
    error = make(kind)
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.args, vars(again)) == (kind, error.args, vars(error))


@pytest.mark.parametrize("kind", CLASSES)
def test_error_survives_copying(kind: type[PerdureError]) -> None:
    error = make(kind)
    again = copy.copy(error)
    assert (type(again), again.args, vars(again)) == (kind, error.args, vars(error))


def test_violation_keeps_the_names_of_the_invariants() -> None:
    names = ("JS-5 no_double_consume", "JS-6 consume_bounded")
    assert pickle.loads(pickle.dumps(InvariantViolation(names, "w", "r"))).names == names


def test_refused_append_keeps_the_name_of_the_guard() -> None:
    assert copy.copy(IllegalAppend("program_runs", "w", "r")).guard == "program_runs"


def test_taken_key_keeps_the_run_that_holds_it() -> None:
    assert copy.copy(RunExists("r_81", "w", "r")).run_id == "r_81"
