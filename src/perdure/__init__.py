"""Perdure: durable execution for Python. Programs that survive any crash, with proof."""

from perdure.authoring.call import Call
from perdure.authoring.concurrency import JoinSet, first, gather, join_set
from perdure.authoring.context import Info
from perdure.authoring.interruption import Cancelled
from perdure.authoring.retry import Retry
from perdure.authoring.signal import Signal
from perdure.authoring.task import Task, task
from perdure.authoring.verbs import (
    ChildRun,
    heartbeat,
    info,
    key,
    log,
    now,
    publish,
    random,
    sleep,
    start,
    uuid4,
)
from perdure.authoring.workflow import Workflow, workflow
from perdure.client.engine import Engine
from perdure.client.handle import Handle, RunStatus
from perdure.client.sync import SyncEngine, SyncHandle, run
from perdure.core.errors import (
    InputError,
    KeyReused,
    NotDone,
    PerdureError,
    RunCancelled,
    RunClosed,
    RunDiverged,
    RunFailed,
    StepCancelled,
    StepInDoubt,
    TaskFailed,
    UnknownRun,
)
from perdure.host.settings import Settings

__all__ = [
    "Call",
    "Cancelled",
    "ChildRun",
    "Engine",
    "Handle",
    "Info",
    "InputError",
    "JoinSet",
    "KeyReused",
    "NotDone",
    "PerdureError",
    "Retry",
    "RunCancelled",
    "RunClosed",
    "RunDiverged",
    "RunFailed",
    "RunStatus",
    "Settings",
    "Signal",
    "StepCancelled",
    "StepInDoubt",
    "SyncEngine",
    "SyncHandle",
    "Task",
    "TaskFailed",
    "UnknownRun",
    "Workflow",
    "first",
    "gather",
    "heartbeat",
    "info",
    "join_set",
    "key",
    "log",
    "now",
    "publish",
    "random",
    "run",
    "sleep",
    "start",
    "task",
    "uuid4",
    "workflow",
]
