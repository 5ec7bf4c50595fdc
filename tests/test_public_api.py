import inspect
import subprocess
import sys

import pytest

import perdure

PUBLIC = [
    "Abandoned",
    "Alert",
    "AlertCode",
    "AnswerWait",
    "ApplicationError",
    "ArtifactRef",
    "Call",
    "Cancelled",
    "CannotCompile",
    "Cause",
    "CauseKind",
    "ChildRun",
    "ChildWait",
    "Chunk",
    "ChunkState",
    "ContractEvent",
    "DeploymentState",
    "Description",
    "Engine",
    "EngineRunRef",
    "EventType",
    "Explanation",
    "ForbiddenStatement",
    "GraphBuilder",
    "GraphInvalid",
    "GraphProgram",
    "GraphVersion",
    "Handle",
    "HookWait",
    "Info",
    "InputError",
    "JoinSet",
    "JoinWait",
    "KeyReused",
    "KeySpent",
    "LedgerAccount",
    "NotActive",
    "NotCommitted",
    "NotDone",
    "PerdureError",
    "Preflight",
    "ProgramCall",
    "Response",
    "ResponseError",
    "Retry",
    "RetryWait",
    "RootCause",
    "RunCancelled",
    "RunClosed",
    "RunDiverged",
    "RunEnded",
    "RunFailed",
    "RunInterrupted",
    "RunSnapshot",
    "RunStatus",
    "SequenceGap",
    "Settings",
    "Signal",
    "SignalReused",
    "SignalWait",
    "SnapshotProjector",
    "SnapshotStatus",
    "StatementFailed",
    "StepCancelled",
    "StepInDoubt",
    "StepSnapshot",
    "StepStatus",
    "Stream",
    "SyncEngine",
    "SyncHandle",
    "SyncTransaction",
    "Task",
    "TaskFailed",
    "TaskState",
    "TaskWait",
    "TimerWait",
    "Transaction",
    "TransactionError",
    "TransactionInterrupted",
    "TransactionOver",
    "UnknownRun",
    "UnknownStep",
    "UnknownVersion",
    "UnreadableProgram",
    "VersionExists",
    "Waits",
    "WarmMemory",
    "Workflow",
    "audit",
    "continue_as_new",
    "first",
    "gather",
    "graph",
    "heartbeat",
    "info",
    "inline",
    "join_set",
    "key",
    "load_graph",
    "log",
    "now",
    "patched",
    "publish",
    "random",
    "run",
    "shield",
    "sleep",
    "start",
    "stream",
    "task",
    "upcaster",
    "uuid4",
    "verify",
    "workflow",
]


def test_the_public_names_are_these() -> None:
    assert sorted(perdure.__all__) == PUBLIC


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_says_what_it_is_for(name: str) -> None:
    thing = getattr(perdure, name)
    documented = thing if inspect.isclass(thing) or inspect.isfunction(thing) else type(thing)
    assert documented.__doc__


@pytest.mark.parametrize(
    "module", ["asyncpg", "rich", "cyclopts", "ruamel.yaml", "pytest", "hypothesis"]
)
def test_importing_perdure_does_not_import(module: str) -> None:
    program = f"import sys, perdure; sys.exit({module!r} in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], check=False)
    assert done.returncode == 0
