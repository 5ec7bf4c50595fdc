"""Operations that several processes carry out together: liveness, crash detection and clean-up."""

from perdure.core.errors import (
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
from perdure.core.operations.data import (
    FrameState,
    LedgerData,
    OperationFailedInfo,
    OperationState,
    StackFrame,
)
from perdure.core.operations.heartbeat import HeartbeatResult
from perdure.core.operations.log import LogEvent, LogLevel
from perdure.core.operations.timing import LedgerSettings
from perdure.operations.callbacks import CallCallback
from perdure.operations.calls import Call, SpawnedCall
from perdure.operations.ledger import Ledger
from perdure.operations.operation import Operation
from perdure.operations.sync_result import SyncResult

__all__ = [
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
