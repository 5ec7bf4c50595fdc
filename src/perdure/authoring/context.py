"""Where code runs: in a workflow's turn, in a task, or in neither.

The engine and its executors implement these contexts; the verbs find the current one here.
"""

from collections.abc import Awaitable, Generator, Sequence
from contextvars import ContextVar
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from perdure.authoring.interruption import Continued
from perdure.core.errors import OutsideRun
from perdure.core.ids import RunId, SetId, StepId
from perdure.core.journal.events import AwaitKind

if TYPE_CHECKING:
    from perdure.authoring.call import Call, Operation
    from perdure.authoring.signal import Signal


class Info(msgspec.Struct, frozen=True, gc=False):
    """Who is running. In a task `step` and `attempt` are the task's own."""

    run_id: RunId
    program: str
    version: str
    key: str | None
    step: StepId
    attempt: int = 1


class Promise(Protocol):
    """A place in the call tree and, once it is settled, its outcome."""

    @property
    def step(self) -> StepId: ...

    @property
    def is_settled(self) -> bool: ...

    @property
    def settled_at(self) -> int:
        """Which settlement of the run it was: the first, the second and so on."""
        ...

    @property
    def child_run(self) -> RunId | None:
        """The run that it is, if it is one."""
        ...

    def outcome(self) -> Any:
        """The value, or raises the failure."""
        ...


class Wait(msgspec.Struct, frozen=True):
    """What a workflow's coroutine yields to the engine: it can't go on before these are settled."""

    promises: tuple[Any, ...]
    kind: AwaitKind

    @property
    def is_over(self) -> bool:
        settled = (promise.is_settled for promise in self.promises)
        return any(settled) if self.kind is AwaitKind.ANY else all(settled)

    def __await__(self) -> Generator["Wait", None, None]:
        if not self.is_over:
            yield self


class WorkflowContext(Protocol):
    """What the engine does for a workflow. Every call belongs to the coroutine that is being driven."""

    @property
    def info(self) -> Info: ...

    @property
    def is_replaying(self) -> bool: ...

    def made(self, operation: "Operation[Any]") -> None:
        """Something was made that must be awaited some day."""
        ...

    def used(self, operation: "Operation[Any]") -> None:
        """It was begun, or refused: it is not forgotten."""
        ...

    def begin(self, operation: "Operation[Any]") -> Promise:
        """Take the next place in the call tree for `operation`, and schedule it."""
        ...

    def abandon(self, promises: Sequence[Promise]) -> tuple[Promise, ...]:
        """Cancel what is not settled. Returns the branches that must still clean up."""
        ...

    def now(self) -> datetime: ...

    def draw(self) -> int:
        """64 random bits, journaled."""
        ...

    def patched(self, patch: str) -> bool:
        """Whether the run follows that patch, from its first question to its end."""
        ...

    def last_place(self) -> StepId:
        """The place that was taken last."""
        ...

    def publish(self, name: str, value: object) -> None: ...

    def append(self, name: str, value: object) -> None:
        """Append a chunk to a stream, with the next commit."""
        ...

    def create_set(self) -> SetId: ...

    def submit(self, set_id: SetId, operation: "Operation[Any]") -> Promise: ...

    def consume(self, set_id: SetId, promise: Promise) -> None:
        """The program takes this member's result now."""
        ...

    def start_child(self, call: "Call[Any]") -> Promise:
        """Begin a child run that may outlive this one."""
        ...

    def continue_as_new(self, call: "Call[Any]") -> Continued:
        """What to raise, so that the run ends and goes on as `call`. Refused while anything of it is open."""
        ...

    def signal_child(self, promise: Promise, signal: "Signal[Any]", value: object) -> None: ...


class TaskContext(Protocol):
    """What an executor does for a task."""

    @property
    def info(self) -> Info: ...

    @property
    def key(self) -> str: ...

    def nested(self) -> "TaskContext":
        """The context of a task that this one calls."""
        ...

    def heartbeat(self) -> None: ...

    def publish(self, name: str, value: object) -> None: ...

    def append(self, name: str, value: object) -> None:
        """Append a chunk to a stream, at once."""
        ...

    def flush(self) -> Awaitable[None]:
        """Wait until all that was appended is durable."""
        ...


WORKFLOW: ContextVar[WorkflowContext | None] = ContextVar("perdure_workflow", default=None)
TASK: ContextVar[TaskContext | None] = ContextVar("perdure_task", default=None)


def workflow_context(verb: str) -> WorkflowContext:
    """The workflow that is running; a clear error where there is none."""
    context = WORKFLOW.get()
    if context is None:
        place = "in a task" if TASK.get() is not None else "outside a run"
        raise OutsideRun(
            f"{verb} is called {place}", "call it in a function decorated with @workflow"
        )
    return context


def task_context(verb: str) -> TaskContext:
    """The task that is running; a clear error where there is none."""
    is_workflow = WORKFLOW.get() is not None  # its turn may be taken where a task has just ended
    context = TASK.get()
    if context is None or is_workflow:
        place = "in a workflow" if is_workflow else "outside a run"
        raise OutsideRun(f"{verb} is called {place}", "call it in a function decorated with @task")
    return context
