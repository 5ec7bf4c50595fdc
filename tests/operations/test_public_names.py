import subprocess
import sys

import pytest

from perdure import operations

PUBLIC = [
    "Call",
    "CallCallback",
    "CallFailed",
    "CallOver",
    "CallsOpen",
    "CorruptOperation",
    "FrameState",
    "HeartbeatResult",
    "Ledger",
    "LedgerData",
    "LedgerSettings",
    "LogEvent",
    "LogLevel",
    "Operation",
    "OperationError",
    "OperationFailed",
    "OperationFailedInfo",
    "OperationOver",
    "OperationState",
    "ParticipantFenced",
    "SpawnedCall",
    "StackFrame",
    "SyncResult",
    "UnknownOperation",
    "WorkerFailed",
    "WorkerTimedOut",
]


def test_the_public_names_are_these() -> None:
    assert sorted(operations.__all__) == PUBLIC


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_has_a_docstring(name: str) -> None:
    assert getattr(operations, name).__doc__


def test_importing_operations_imports_no_driver_that_files_do_not_need() -> None:
    program = "import sys, perdure.operations; sys.exit('asyncpg' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], check=False)
    assert done.returncode == 0
