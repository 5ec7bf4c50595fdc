"""The durable verbs: what a workflow uses in place of clocks, dice and waiting."""

import logging
from collections.abc import MutableMapping
from datetime import datetime
from hashlib import sha256
from random import Random  # noqa: TID251 - seeded from the journal, so that it repeats itself
from typing import Any, Generic, NoReturn, TypeVar
from uuid import UUID

from perdure.authoring.call import Call, Composite, Operation, Sleep, discard, made
from perdure.authoring.context import (
    TASK,
    WORKFLOW,
    Info,
    Promise,
    Wait,
    WorkflowContext,
    task_context,
    workflow_context,
)
from perdure.authoring.durations import Duration, milliseconds
from perdure.authoring.program import ProgramCall
from perdure.authoring.signal import Signal, require_signal
from perdure.authoring.texts import require_text
from perdure.core.errors import InputError, OutsideRun, PerdureError
from perdure.core.ids import RunId
from perdure.core.journal.events import AwaitKind

R = TypeVar("R")
T = TypeVar("T")


def now() -> datetime:
    """The time, in UTC. Recorded: a replay sees the same one."""
    return workflow_context("perdure.now").now()


def random() -> Random:
    """A generator of random numbers, seeded by a recorded value: a replay draws the same ones."""
    return Random(workflow_context("perdure.random").draw())  # noqa: S311 - not for secrets


def uuid4() -> UUID:
    """A random UUID; a replay makes the same one."""
    context = workflow_context("perdure.uuid4")
    bits = context.draw()
    seed = f"{context.info.run_id}|{context.last_place()}|{bits}"
    return UUID(bytes=sha256(seed.encode()).digest()[:16], version=4)


def patched(patch: str, /) -> bool:
    """Whether this run takes the changed code: false if it was past this place when the change came.

    The first answer for a `patch` holds to the end of the run. Every change has a text of its own.
    """
    context = workflow_context("perdure.patched")
    text = require_text("the id of a patch", patch)
    if not text.isprintable():
        raise InputError(f"{patch!r} can't be the id of a patch", "pass printable characters")
    return context.patched(text)


def sleep(duration: Duration) -> Operation[None]:
    """Wait for that long, in seconds or as a timedelta. A sleeping run needs no memory and no process."""
    return made(Sleep(milliseconds(duration, "sleep")))


def publish(name: str, value: object) -> None:
    """Let clients read `value` under `name`, such as progress. A later value replaces it."""
    context = WORKFLOW.get() or TASK.get()
    if context is None:
        raise OutsideRun(
            "perdure.publish is called outside a run", "call it in a workflow or a task"
        )
    context.publish(require_text("the name of a published value", name), value)


def info() -> Info:
    """Which run this is; in a task, which step and attempt."""
    context = WORKFLOW.get() or TASK.get()
    if context is None:
        raise OutsideRun("perdure.info is called outside a run", "call it in a workflow or a task")
    return context.info


def heartbeat() -> None:
    """Tell that a long task is alive: it resets the task's `heartbeat_timeout`."""
    task_context("perdure.heartbeat").heartbeat()


def key() -> str:
    """A text that is the same in every attempt of this step, and in no other step.

    Pass it to services that take an idempotency key.
    """
    return task_context("perdure.key").key


class ChildRun(Generic[R]):
    """A run that this workflow started and does not wait for, until it asks for the result."""

    def __init__(self, promise: Promise) -> None:
        self._promise = promise

    @property
    def run_id(self) -> RunId:
        run_id = self._promise.child_run
        assert run_id is not None  # noqa: S101 - for the type checker
        return run_id

    async def result(self) -> R:
        """What the child returned; raises what it raised."""
        await Wait((self._promise,), AwaitKind.SINGLE)
        result: R = self._promise.outcome()
        return result

    def signal(self, signal: Signal[T], value: T) -> None:
        """Send the child a signal, once."""
        context = workflow_context("ChildRun.signal")
        context.signal_child(self._promise, require_signal(signal), value)

    def cancel(self) -> Operation[None]:
        """Ask the child to stop: `await child.cancel()`. Its result is lost to this workflow."""
        return made(_CancelChild(self._promise))


class _CancelChild(Composite[None]):
    """A child run is asked to stop."""

    __slots__ = ("_promise",)

    verb = "ChildRun.cancel"

    def __init__(self, promise: Promise) -> None:
        self._promise = promise

    async def run(self) -> None:
        workflow_context(self.verb).abandon((self._promise,))


async def start(call: ProgramCall[R]) -> ChildRun[R]:
    """Start a workflow as a child run, and go on without waiting for it.

    A child whose result is never asked for outlives its parent.
    """
    return ChildRun(_context_for("perdure.start", call).start_child(call))


async def continue_as_new(call: ProgramCall[Any]) -> NoReturn:
    """End this run here, and go on as a new one with a fresh journal: `await continue_as_new(loop(state))`.

    Never returns. Refused while a step, a timer, a branch or a child run of this run is open.
    """
    raise _context_for("perdure.continue_as_new", call).continue_as_new(call)


def _context_for(verb: str, call: object) -> WorkflowContext:
    """The workflow that is running, if what `verb` was given is a call of one."""
    try:
        context = workflow_context(verb)
        if not (isinstance(call, Call) and call.definition.noun == "workflow"):
            raise InputError(f"{verb} was given {call!r}", "pass a call of a workflow")
    except PerdureError:
        discard(call)
        raise
    return context


class RunLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger that is silent while a run is replayed, and knows which run speaks."""

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - overrides logging's
        context = WORKFLOW.get()
        return not (context is not None and context.is_replaying) and super().isEnabledFor(level)

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        context = WORKFLOW.get() or TASK.get()
        if context is not None:
            who = {"run_id": context.info.run_id, "step": context.info.step}
            kwargs["extra"] = who | dict(kwargs.get("extra") or {})
        return msg, kwargs


log = RunLogger(logging.getLogger("perdure.run"))
