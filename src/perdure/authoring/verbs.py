"""The durable verbs: what a workflow uses instead of clocks, random numbers and sleeping."""

from datetime import datetime
from hashlib import sha256
from random import Random  # noqa: TID251 - seeded from the journal, so replay draws the same numbers
from typing import TYPE_CHECKING, Any, Generic, Never, TypeVar
from uuid import UUID

from perdure.authoring.call import Call, Composite, DurableOperation, Sleep, discard, made
from perdure.authoring.context import (
    TASK,
    WORKFLOW,
    Info,
    Promise,
    Suspension,
    WorkflowContext,
    task_context,
    workflow_context,
)
from perdure.authoring.durations import Duration, milliseconds
from perdure.authoring.program import ProgramCall
from perdure.authoring.signal import Signal, require_signal
from perdure.authoring.tags import TagValue, tag_texts
from perdure.authoring.texts import require_user_text
from perdure.core.errors import InputError, OutsideRun, PerdureError
from perdure.core.ids import RunId
from perdure.core.journal.events import AwaitKind

R = TypeVar("R")
T = TypeVar("T")

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    # Never returned. In `return await continue_as_new(...)` type checkers take it for the function's result type.
    A = TypeVarWithDefault("A", default=Never)
else:
    A = TypeVar("A")


def now() -> datetime:
    """The time in UTC. It is recorded: a replay returns the same time."""
    return workflow_context("perdure.now").now()


def random() -> Random:
    """A generator of random numbers, seeded by a recorded value: a replay draws the same ones."""
    return Random(workflow_context("perdure.random").draw())  # noqa: S311 - not for secrets


def uuid4() -> UUID:
    """A random UUID; a replay makes the same one."""
    context = workflow_context("perdure.uuid4")
    bits = context.draw()
    seed = f"{context.seed}|{context.last_place()}|{bits}"
    return UUID(bytes=sha256(seed.encode()).digest()[:16], version=4)


def patched(patch: str, /) -> bool:
    """Whether this run uses the changed code: False if it passed this line before the change was deployed.

    The first answer for a `patch` holds until the run ends. Use a different text for every change.
    """
    context = workflow_context("perdure.patched")
    text = require_user_text("the id of a patch", patch)
    if not text.isprintable():
        raise InputError(f"{patch!r} can't be the id of a patch", "pass printable characters")
    return context.patched(text)


def params(declared: type[T], /) -> T:
    """The run's parameters as they are now: `perdure.params(Tuning)` in a `@workflow(params=Tuning)`.

    They change only where the run takes in an operator's act (`Handle.update_params`), between two turns of the
    workflow: a replay reads the same values at the same places. Each call returns a new object.
    """
    return workflow_context("perdure.params").params(declared)


def sleep(duration: Duration) -> DurableOperation[None]:
    """Wait for `duration`, in seconds or as a timedelta. A sleeping run needs no memory and no process."""
    return made(Sleep(milliseconds(duration, "sleep")))


def publish(name: str, value: object) -> None:
    """Let clients read `value` under `name`, such as progress. A later value replaces it."""
    context = WORKFLOW.get() or TASK.get()
    if context is None:
        raise OutsideRun(
            "perdure.publish is called outside a run", "call it in a workflow or a task"
        )
    context.publish(require_user_text("the name of a published value", name), value)


def tag(**tags: TagValue) -> None:
    """Give this run tags, by which `Engine.runs` finds it: `perdure.tag(stage="paid")`.

    A value is a text, a number or a bool, and replaces the earlier value of the same name. Runs that this run starts
    from now on get the tags too.
    """
    if TASK.get() is not None and WORKFLOW.get() is None:
        raise OutsideRun(
            "perdure.tag is called in a task", "call it in the workflow, with what the task returns"
        )
    workflow_context("perdure.tag").tag(tag_texts(tags))


def info() -> Info:
    """The current run; in a task, also its step and attempt."""
    if (running := WORKFLOW.get()) is not None:
        return running.current_info()
    context = TASK.get()
    if context is None:
        raise OutsideRun("perdure.info is called outside a run", "call it in a workflow or a task")
    return context.info


def heartbeat() -> None:
    """Report that a long task is alive: restarts its `heartbeat_timeout`."""
    task_context("perdure.heartbeat").heartbeat()


def key() -> str:
    """A text that is the same in every attempt of this step and differs between steps.

    It changes when an operator retries the step: that is a new request.

    Pass it to services that take an idempotency key.
    """
    return task_context("perdure.key").key


class ChildRun(Generic[R]):
    """A child run that this workflow started. The workflow waits for it only in `result()`."""

    def __init__(self, promise: Promise) -> None:
        self._promise = promise

    @property
    def run_id(self) -> RunId:
        run_id = self._promise.child_run
        assert run_id is not None  # noqa: S101 - for the type checker
        return run_id

    async def result(self) -> R:
        """The result of the child; raises its exception if it failed."""
        await Suspension((self._promise,), AwaitKind.SINGLE)
        result: R = self._promise.outcome()
        return result

    def signal(self, signal: Signal[T], value: T) -> None:
        """Send the child a signal, once."""
        context = workflow_context("ChildRun.signal")
        context.signal_child(self._promise, require_signal(signal), value)

    def cancel(self) -> DurableOperation[None]:
        """Request cancellation of the child: `await child.cancel()`. This workflow can't get its result afterwards."""
        return made(_CancelChild(self._promise))


class _CancelChild(Composite[None]):
    """Requests cancellation of a child run."""

    __slots__ = ("_promise",)

    verb = "ChildRun.cancel"

    def __init__(self, promise: Promise) -> None:
        self._promise = promise

    async def run(self) -> None:
        workflow_context(self.verb).abandon((self._promise,))


async def start(call: ProgramCall[R]) -> ChildRun[R]:
    """Start a workflow as a child run, without waiting for it.

    A child whose result the parent never awaits outlives the parent.
    """
    return ChildRun(_context_for("perdure.start", call).start_child(call))


async def continue_as_new(call: ProgramCall[Any]) -> A:
    """End this run, and continue as a new run with an empty journal: `await continue_as_new(loop(state))`.

    Never returns. Refused while a step, a timer, a branch or a child run of this run is open.
    """
    raise _context_for("perdure.continue_as_new", call).continue_as_new(call)


def _context_for(verb: str, call: object) -> WorkflowContext:
    """The context of the running workflow. Refuses a `call` that is no call of a workflow."""
    try:
        context = workflow_context(verb)
        if not (isinstance(call, Call) and call.definition.noun == "workflow"):
            raise InputError(f"{verb} was given {call!r}", "pass a call of a workflow")
    except PerdureError:
        discard(call)
        raise
    return context
