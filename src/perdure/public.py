"""All public names of Perdure."""

from perdure.api.remote.connecting import RemoteEngine, connect
from perdure.api.remote.handle import RemoteHandle, RemoteReceipt
from perdure.authoring.artifacts import put_artifact
from perdure.authoring.call import Call
from perdure.authoring.concurrency import JoinSet, first, gather, join_set, shield
from perdure.authoring.context import Info
from perdure.authoring.graphs.builder import GraphBuilder
from perdure.authoring.graphs.decorator import graph
from perdure.authoring.graphs.inline import inline
from perdure.authoring.graphs.program import GraphProgram
from perdure.authoring.graphs.yaml import load_graph
from perdure.authoring.interruption import Cancelled
from perdure.authoring.limits import Limit, Rate
from perdure.authoring.program import ProgramCall
from perdure.authoring.request import Answered, Ask, Request
from perdure.authoring.resources import resource
from perdure.authoring.response import Response
from perdure.authoring.retry import Retry
from perdure.authoring.run_logging import RunFieldsFilter, log
from perdure.authoring.secrets import SecretFilter, secret
from perdure.authoring.signal import Signal
from perdure.authoring.stream import Stream, stream
from perdure.authoring.task import Task, task
from perdure.authoring.values.upcaster import upcaster
from perdure.authoring.verbs import (
    ChildRun,
    continue_as_new,
    heartbeat,
    info,
    key,
    now,
    params,
    patched,
    publish,
    random,
    sleep,
    start,
    tag,
    uuid4,
)
from perdure.authoring.workflow import Workflow, workflow
from perdure.client.admission_terms import StartTerms
from perdure.client.buses import BusInfo
from perdure.client.deployments import DeploymentState, GraphVersion
from perdure.client.engine import Engine
from perdure.client.engine_services import EngineServices
from perdure.client.inspection import audit, verify
from perdure.client.limits import LimitInfo, StartOutcome
from perdure.client.retention import Erasure, KeptRun
from perdure.client.runs.acts import Receipt
from perdure.client.runs.comparing import RunDiff, StepDiff, StepSide
from perdure.client.runs.fork_requests import ForkedStep, ForkPreview
from perdure.client.runs.handle import Handle
from perdure.client.runs.history import LedgerAccount
from perdure.client.runs.lists import Page, RunFilters, RunSummary
from perdure.client.runs.status import RunStatus
from perdure.client.runs.streams import Abandoned, Chunk
from perdure.client.runs.sync_acts import SyncReceipt
from perdure.client.runs.waits import HookWait, Waits
from perdure.client.schedules.schedules import ScheduleHandle, ScheduleInfo, TickInfo
from perdure.client.schedules.timetables import Cron, Every, Once
from perdure.client.sync import SyncEngine, run
from perdure.client.sync_handle import SyncHandle
from perdure.client.sync_transaction import SyncTransaction
from perdure.core.codec import Codec, JsonCodec
from perdure.core.encryption import EncryptedCodec
from perdure.core.errors import (
    ArtifactDamaged,
    ArtifactMissing,
    BusRefused,
    BusUnavailable,
    CannotCompile,
    Denied,
    ForbiddenStatement,
    ForkDiverged,
    GraphInvalid,
    InputError,
    KeyReused,
    KeySpent,
    LimitReached,
    NoArtifactStore,
    NotActive,
    NotCommitted,
    NotDone,
    PerdureError,
    RequestRejected,
    RequestUnanswered,
    ResponseError,
    RunCancelled,
    RunClosed,
    RunDiverged,
    RunEnded,
    RunFailed,
    RunInterrupted,
    SecretExposed,
    SignalReused,
    StatementFailed,
    StepCancelled,
    StepInDoubt,
    TaskFailed,
    TooManyActs,
    TransactionError,
    TransactionInterrupted,
    TransactionOver,
    UnknownBus,
    UnknownRun,
    UnknownSecret,
    UnknownStep,
    UnknownVersion,
    UnreadableProgram,
    VersionExists,
)
from perdure.core.journal.contract import EventType
from perdure.core.journal.events import ActType, ArtifactRef
from perdure.core.runs.acts import Act, Actor, Decision
from perdure.core.runs.alerts import Alert, AlertCode
from perdure.core.runs.authority import ActedRun, AllowAll, Authorizer, Roles
from perdure.core.runs.contract_event import ContractEvent, EngineRunRef
from perdure.core.runs.decided_acts import DecidedAct
from perdure.core.runs.description import Description
from perdure.core.runs.diff import StepChange
from perdure.core.runs.erasing import RunErasure
from perdure.core.runs.explaining import Explanation
from perdure.core.runs.obstacles import Cause, CauseKind
from perdure.core.runs.projector import SnapshotProjector
from perdure.core.runs.snapshot import (
    ApplicationError,
    RootCause,
    RunSnapshot,
    SequenceGap,
    SnapshotStatus,
    StepSnapshot,
    StepStatus,
)
from perdure.core.runs.tracing import TraceSpan
from perdure.core.runs.waits import (
    AnswerWait,
    ChildWait,
    JoinWait,
    OperatorWait,
    RetryWait,
    SignalWait,
    TaskState,
    TaskWait,
    TimerWait,
)
from perdure.core.secrets import SecretRef
from perdure.core.streams.chunks import ChunkState
from perdure.core.transactions import Transaction
from perdure.engine.programs.preflight import Preflight
from perdure.host.artifacts.artifacts import Artifacts
from perdure.host.artifacts.object_store import ObjectArtifacts
from perdure.host.artifacts.store import ArtifactStore, DirectoryArtifacts
from perdure.host.bus.bus import BusOptions, EventBus
from perdure.host.bus.jet_stream import JetStream
from perdure.host.bus.redis_stream import RedisStream
from perdure.host.bus.subscriber import Subscriber
from perdure.host.bus.webhook import Webhook
from perdure.host.retention.passes import Retained
from perdure.host.retention.policy import Retention
from perdure.host.runs.memory import WarmMemory
from perdure.host.secrets import EnvironmentSecrets, FileSecrets, SecretProvider, SecretScope
from perdure.host.settings import Settings
from perdure.store.bus_table import DeadLetter
from perdure.store.rows.lists import RunCount, SqlRows

__all__ = [
    "Abandoned",
    "Act",
    "ActType",
    "ActedRun",
    "Actor",
    "Alert",
    "AlertCode",
    "AllowAll",
    "AnswerWait",
    "Answered",
    "ApplicationError",
    "ArtifactDamaged",
    "ArtifactMissing",
    "ArtifactRef",
    "ArtifactStore",
    "Artifacts",
    "Ask",
    "Authorizer",
    "BusInfo",
    "BusOptions",
    "BusRefused",
    "BusUnavailable",
    "Call",
    "Cancelled",
    "CannotCompile",
    "Cause",
    "CauseKind",
    "ChildRun",
    "ChildWait",
    "Chunk",
    "ChunkState",
    "Codec",
    "ContractEvent",
    "Cron",
    "DeadLetter",
    "DecidedAct",
    "Decision",
    "Denied",
    "DeploymentState",
    "Description",
    "DirectoryArtifacts",
    "EncryptedCodec",
    "Engine",
    "EngineRunRef",
    "EngineServices",
    "EnvironmentSecrets",
    "Erasure",
    "EventBus",
    "EventType",
    "Every",
    "Explanation",
    "FileSecrets",
    "ForbiddenStatement",
    "ForkDiverged",
    "ForkPreview",
    "ForkedStep",
    "GraphBuilder",
    "GraphInvalid",
    "GraphProgram",
    "GraphVersion",
    "Handle",
    "HookWait",
    "Info",
    "InputError",
    "JetStream",
    "JoinSet",
    "JoinWait",
    "JsonCodec",
    "KeptRun",
    "KeyReused",
    "KeySpent",
    "LedgerAccount",
    "Limit",
    "LimitInfo",
    "LimitReached",
    "NoArtifactStore",
    "NotActive",
    "NotCommitted",
    "NotDone",
    "ObjectArtifacts",
    "Once",
    "OperatorWait",
    "Page",
    "PerdureError",
    "Preflight",
    "ProgramCall",
    "Rate",
    "Receipt",
    "RedisStream",
    "RemoteEngine",
    "RemoteHandle",
    "RemoteReceipt",
    "Request",
    "RequestRejected",
    "RequestUnanswered",
    "Response",
    "ResponseError",
    "Retained",
    "Retention",
    "Retry",
    "RetryWait",
    "Roles",
    "RootCause",
    "RunCancelled",
    "RunClosed",
    "RunCount",
    "RunDiff",
    "RunDiverged",
    "RunEnded",
    "RunErasure",
    "RunFailed",
    "RunFieldsFilter",
    "RunFilters",
    "RunInterrupted",
    "RunSnapshot",
    "RunStatus",
    "RunSummary",
    "ScheduleHandle",
    "ScheduleInfo",
    "SecretExposed",
    "SecretFilter",
    "SecretProvider",
    "SecretRef",
    "SecretScope",
    "SequenceGap",
    "Settings",
    "Signal",
    "SignalReused",
    "SignalWait",
    "SnapshotProjector",
    "SnapshotStatus",
    "SqlRows",
    "StartOutcome",
    "StartTerms",
    "StatementFailed",
    "StepCancelled",
    "StepChange",
    "StepDiff",
    "StepInDoubt",
    "StepSide",
    "StepSnapshot",
    "StepStatus",
    "Stream",
    "Subscriber",
    "SyncEngine",
    "SyncHandle",
    "SyncReceipt",
    "SyncTransaction",
    "Task",
    "TaskFailed",
    "TaskState",
    "TaskWait",
    "TickInfo",
    "TimerWait",
    "TooManyActs",
    "TraceSpan",
    "Transaction",
    "TransactionError",
    "TransactionInterrupted",
    "TransactionOver",
    "UnknownBus",
    "UnknownRun",
    "UnknownSecret",
    "UnknownStep",
    "UnknownVersion",
    "UnreadableProgram",
    "VersionExists",
    "Waits",
    "WarmMemory",
    "Webhook",
    "Workflow",
    "audit",
    "connect",
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
    "params",
    "patched",
    "publish",
    "put_artifact",
    "random",
    "resource",
    "run",
    "secret",
    "shield",
    "sleep",
    "start",
    "stream",
    "tag",
    "task",
    "upcaster",
    "uuid4",
    "verify",
    "workflow",
]
