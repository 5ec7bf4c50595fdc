"""The contexts that durable verbs use: the workflow or the task in which the code is running.

The engine implements the workflow context, hosts the task context; context variables hold the current one.
"""

from asyncio import AbstractEventLoop, get_running_loop, run_coroutine_threadsafe
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from os import PathLike
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

import msgspec

from perdure.authoring.interruption import Continued
from perdure.core.codec import Codec
from perdure.core.errors import InputError, OutsideRun
from perdure.core.ids import Guid, RunId, SetId, StepId
from perdure.core.journal.events import ArtifactRef, AwaitKind

if TYPE_CHECKING:
    from perdure.authoring.call import Call, DurableOperation
    from perdure.authoring.signal import Signal


T = TypeVar("T")

ArtifactData: TypeAlias = bytes | str | PathLike[str]
"""Bytes, a text (stored as UTF-8), or the path of a file."""


class Info(msgspec.Struct, frozen=True, gc=False):
    """Which run is executing. In a task, `step` and `attempt` are those of the task; `logical_attempt` is 2 once an
    operator has retried the step, and so on. `trace` is the trace context that the run belongs to, in the form of W3C
    Trace Context; `None` unless the run is traced. `continue_suggested`: the journal of the workflow has become long,
    and it should call `perdure.continue_as_new` soon."""

    run_id: RunId
    program: str
    version: str
    key: str | None
    step: StepId
    attempt: int = 1
    logical_attempt: int = 1
    trace: str | None = None
    continue_suggested: bool = False


class Promise(Protocol):
    """A step of the run and, once it is settled, its outcome."""

    @property
    def step(self) -> StepId: ...

    @property
    def is_settled(self) -> bool: ...

    @property
    def settled_at(self) -> int:
        """Its position in the order in which the run's promises were settled."""
        ...

    @property
    def child_run(self) -> RunId | None:
        """The id of the child run that the step started, if any."""
        ...

    def outcome(self) -> Any:
        """Return the value, or raise the failure."""
        ...


class Suspension(msgspec.Struct, frozen=True):
    """What a workflow's coroutine yields to the engine: it resumes when all (or any) of the promises are settled."""

    promises: tuple[Any, ...]
    kind: AwaitKind

    @property
    def is_over(self) -> bool:
        settled = (promise.is_settled for promise in self.promises)
        return any(settled) if self.kind is AwaitKind.ANY else all(settled)

    def __await__(self) -> Generator["Suspension", None, None]:
        if not self.is_over:
            yield self


class WorkflowContext(Protocol):
    """What the engine does for a workflow. Every call acts for the coroutine that is being driven."""

    @property
    def info(self) -> Info: ...

    def current_info(self) -> Info:
        """`info`, with what may change while the workflow executes."""
        ...

    @property
    def home(self) -> str:
        """The module of the program's function."""
        ...

    @property
    def seed(self) -> str:
        """What random ids derive from: the id of the run or, in a fork, of the run that was forked first."""
        ...

    @property
    def is_replaying(self) -> bool: ...

    def made(self, operation: "DurableOperation[Any]") -> None:
        """Note that an operation was created. If it is never used, the engine reports it."""
        ...

    def used(self, operation: "DurableOperation[Any]") -> None:
        """Note that an operation was begun or refused."""
        ...

    def begin(self, operation: "DurableOperation[Any]") -> Promise:
        """Allocate the next step id for `operation`, and schedule it."""
        ...

    def abandon(self, promises: Sequence[Promise]) -> tuple[Promise, ...]:
        """Cancel the promises that are not settled. Returns the branches that must still clean up."""
        ...

    def now(self) -> datetime: ...

    def draw(self) -> int:
        """64 random bits, journaled."""
        ...

    def patched(self, patch: str) -> bool:
        """Whether the run uses that patch. The first answer holds until the run ends."""
        ...

    def params(self, declared: type[T]) -> T:
        """The parameters of the run, as the last accepted act has left them."""
        ...

    def last_place(self) -> StepId:
        """The step id that was allocated last."""
        ...

    def publish(self, name: str, value: object) -> None: ...

    def tag(self, tags: Mapping[str, str]) -> None:
        """Give the run tags, with the next commit."""
        ...

    def append(self, name: str, value: object) -> None:
        """Append a chunk to a stream, with the next commit."""
        ...

    def asked(self, name: str, guid: Guid) -> None:
        """The program receives the request `name`, which the signal `guid` brought."""
        ...

    def answer(
        self, name: str, guid: Guid, encode: Callable[[Codec], bytes], *, is_rejection: bool
    ) -> None:
        """Answer the request `name` that the signal `guid` brought, with the next commit."""
        ...

    def create_set(self) -> SetId: ...

    def submit(self, set_id: SetId, operation: "DurableOperation[Any]") -> Promise: ...

    def consume(self, set_id: SetId, promise: Promise) -> None:
        """Note that the program takes the result of this member."""
        ...

    def start_child(self, call: "Call[Any]") -> Promise:
        """Start a child run that may outlive this run."""
        ...

    def continue_as_new(self, call: "Call[Any]") -> Continued:
        """The exception to raise so that this run ends and continues as `call`. Refused while a step of it is open."""
        ...

    def signal_child(self, promise: Promise, signal: "Signal[Any]", value: object) -> None: ...


class HostRequest(Generic[T]):
    """What a task asks of its host. An async task awaits it; a sync task, in its thread, calls `wait`."""

    def __init__(
        self, begin: Callable[[], Coroutine[Any, Any, T]], loop: AbstractEventLoop
    ) -> None:
        self._begin = begin
        self._loop = loop

    def __await__(self) -> Generator[Any, Any, T]:
        return self._begin().__await__()

    def wait(self) -> T:
        """The answer. Blocks the thread of a sync task until it is there."""
        try:
            get_running_loop()
        except RuntimeError:  # a thread without an event loop, as that of a sync task
            return run_coroutine_threadsafe(self._begin(), self._loop).result()
        raise InputError("wait() would block the event loop", "await it in an async task")


class TaskContext(Protocol):
    """What the host does for a task attempt."""

    @property
    def info(self) -> Info: ...

    @property
    def key(self) -> str: ...

    def nested(self) -> "TaskContext":
        """The context of a task that this task calls."""
        ...

    def heartbeat(self) -> None: ...

    def secret(self, name: str) -> HostRequest[str]: ...

    def resource(self, kind: type[T]) -> HostRequest[T]: ...

    def put_artifact(
        self, data: ArtifactData, kind: str, expires_ms: int | None
    ) -> HostRequest[ArtifactRef]: ...

    def publish(self, name: str, value: object) -> None: ...

    def append(self, name: str, value: object) -> None:
        """Append a chunk to a stream, without waiting for the step's commit."""
        ...

    def flush(self) -> Awaitable[None]:
        """Wait until all appended chunks are durable."""
        ...


WORKFLOW: ContextVar[WorkflowContext | None] = ContextVar("perdure_workflow", default=None)
TASK: ContextVar[TaskContext | None] = ContextVar("perdure_task", default=None)


def workflow_context(verb: str) -> WorkflowContext:
    """The context of the running workflow. Raises `OutsideRun` if there is none."""
    context = WORKFLOW.get()
    if context is None:
        place = "in a task" if TASK.get() is not None else "outside a run"
        raise OutsideRun(
            f"{verb} is called {place}", "call it in a function decorated with @workflow"
        )
    return context


def task_context(verb: str) -> TaskContext:
    """The context of the running task. Raises `OutsideRun` if there is none."""
    is_workflow = (
        WORKFLOW.get() is not None
    )  # the engine may drive a workflow in the context of a task that just ended
    context = TASK.get()
    if context is None or is_workflow:
        place = "in a workflow" if is_workflow else "outside a run"
        raise OutsideRun(f"{verb} is called {place}", "call it in a function decorated with @task")
    return context
