"""One attempt of a task, and its state while this host executes it."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from perdure.authoring.context import ArtifactData, HostRequest, Info
from perdure.authoring.task import Task
from perdure.core.errors import OutsideRun, SecretExposed
from perdure.core.ids import RunId, StepId
from perdure.core.journal.events import ArtifactRef
from perdure.core.replay.identity import idempotency_text
from perdure.core.transactions import Transaction
from perdure.engine.runs.attempt_outcome import AttemptOutcome
from perdure.engine.runs.attempts import complete_attempt
from perdure.engine.runs.doubts import restart_attempt, stop_attempt
from perdure.engine.runs.effects import Publish
from perdure.engine.runs.warm import WarmRun
from perdure.host.tasks.requests import TaskRequests
from perdure.host.tracing import AttemptSpan
from perdure.store.process import OwnProcess

T = TypeVar("T")

AttemptGroup = tuple[RunId, bool]
"""A run, and whether this host claimed the attempts from a queue: they are kept apart from those of its own runs."""


class AttemptOutput(Protocol):
    """Where the published values and chunks of an attempt go: the executor, or the transaction of the attempt."""

    @property
    def process(self) -> OwnProcess: ...

    @property
    def chunks_of(self) -> "Callable[[Attempt], Chunks]":
        """Returns the chunk writer of an attempt."""
        ...

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...

    @property
    def requests(self) -> TaskRequests: ...

    def publish(self, attempt: "Attempt", name: str, value: object) -> None: ...


class Chunks(Protocol):
    """Takes the chunks of one attempt, from any thread."""

    def append(self, name: str, value: object) -> None: ...

    def flush(self) -> Awaitable[None]: ...

    def end(self) -> bool:
        """Take no more chunks. Returns whether there are chunks to settle."""
        ...

    async def settle(self, outcome: AttemptOutcome) -> AttemptOutcome:
        """Wait until all chunks are durable or have failed. Returns the outcome to report."""
        ...

    def close(self) -> None:
        """The attempt is over. Unless `end` came first, chunks that are not durable yet are dropped."""
        ...


class PublishedValue(NamedTuple):
    """A value that an attempt published, and when."""

    name: str
    payload: bytes
    at_ms: int


class Attempt(msgspec.Struct, eq=False):
    """An attempt to execute. Implements `TaskContext` for the task that it runs.

    `report` takes the outcome; if it returns an awaitable, the executor awaits it. If `is_claimed`, this host claimed
    the attempt from a queue, and another host may own the run; `claim` is the number of the claim. If `is_doubted`, the
    step was in doubt before: the executor asks the task's reconcile function first, if it has one.
    """

    info: Info
    task: Task[..., Any]
    payload: bytes
    report: "OnOutcome"
    is_claimed: bool = False
    claim: int = 1
    is_doubted: bool = False
    epoch: int = 0
    """The epoch of its run when the attempt began, unless it is claimed."""
    is_reconciled: bool = False
    """The reconcile function found the result; the task did not run again."""
    output: "AttemptOutput | None" = None
    runner: asyncio.Task[None] | None = None
    """The asyncio task that executes it and reports its outcome; `None` before and after."""
    thread: asyncio.Future[Any] | None = None
    """The thread call under way. A thread can't be stopped: it keeps the slot until it returns."""
    call: asyncio.Task[Any] | None = None
    """The call under a timeout. After the timeout it is cancelled, not awaited, and keeps the slot until it ends."""
    transaction: Transaction | None = None
    """The first argument of a transactional task."""
    has_begun: bool = False
    is_reporting: bool = False
    """Its code has ended, and its outcome is being reported."""
    has_slot: bool = True
    keeps_slot: bool = False
    """The slot stays reserved for the next step of its run, until the turn that takes the outcome."""
    chunks: "Chunks | None" = None
    """Created with the first chunk; most attempts have none."""
    artifacts: tuple[ArtifactRef, ...] = ()
    """What it has stored. The outcome carries these references."""
    exposed: SecretExposed | None = None
    """Why it fails whatever its code returns: it has published or appended a secret."""
    published: dict[str, PublishedValue] | None = None
    """The newest value of each name that a commit held; the store may have ignored it."""
    error: BaseException | None = None
    """The exception that its code raised, kept until it is logged."""
    span: AttemptSpan | None = None
    """Its span while its code runs, if the host reports spans."""
    on_heartbeat: Callable[[], object] | None = None
    """Called at each heartbeat, in the thread of the task."""
    was_lost: bool = False
    """Its work was back on its queue for a while; this host has regained it under the same claim."""
    _nested_calls: int = 0

    @property
    def text(self) -> str:
        """Its task, step and run, for errors."""
        return f"task {self.task.name!r} (step {self.info.step} of run {self.info.run_id!r})"

    @property
    def key(self) -> str:
        return idempotency_text(self.info.run_id, self.info.step, self.info.logical_attempt)

    def renew(self) -> None:
        """Reset before the code is called, first or again: nested calls then get the same ids."""
        self.is_reporting = False
        self._nested_calls = 0
        self.artifacts = ()
        self.exposed = None

    def completing(self, outcome: AttemptOutcome) -> Callable[[WarmRun], None]:
        """Returns an act that completes the step in its run with the outcome."""
        info = self.info
        act = partial(complete_attempt, step=info.step, attempt=info.attempt, outcome=outcome)
        return act if self.published is None else partial(self._complete_and_publish, act)

    def _complete_and_publish(self, act: Callable[..., None], run: WarmRun) -> None:
        act(run, published=[Publish(*value) for value in self.unconfirmed(run.fence.epoch)])

    def unconfirmed(self, current: int) -> Collection[PublishedValue]:
        """The published values that the store may have ignored.

        `current` is the present epoch of the run, or the present claim of the work. If it is the one under which the
        attempt began, and the host has not lost the work in between, the store took every value.
        """
        first = self.claim if self.is_claimed else self.epoch
        is_confirmed = current == first and not self.was_lost
        return () if self.published is None or is_confirmed else self.published.values()

    def mark_stopped(self, run: WarmRun) -> None:
        """Record in its run that the host cancelled the attempt because the host stops."""
        stop_attempt(run, self.info.step, self.info.attempt)

    def mark_cut_off(self, run: WarmRun) -> None:
        """Record in its run that the transaction lost its connection, and begin the step again."""
        restart_attempt(run, self.info.step, self.info.attempt)

    @property
    def has_ended(self) -> bool:
        """Whether neither the attempt nor a thread or call that it left behind still runs."""
        return self.runner is None and not self.is_occupied

    @property
    def is_occupied(self) -> bool:
        """Whether a thread or a timed call of it still runs, even if its outcome is no longer awaited."""
        return self.thread is not None or self.call is not None

    @property
    def is_over(self) -> bool:
        """Whether its values and chunks are no longer accepted; its code may still run."""
        return self.runner is None or self.is_reporting

    def after_end_error(self, what: str, act: str) -> OutsideRun:
        """The error for code that publishes or appends after its attempt is over."""
        info = self.info
        return OutsideRun(
            f"{what} when attempt {info.attempt} of task {self.task.name!r} ({info.step}) is over",
            f"{act} before the task returns, and before its timeout",
        )

    def nested(self) -> "NestedCall":
        self._nested_calls += 1
        return NestedCall(self, self.info, self._nested_calls - 1)

    def heartbeat(self) -> None:
        self._require_process()
        if self.on_heartbeat is not None:
            self.on_heartbeat()

    def secret(self, name: str) -> HostRequest[str]:
        output = self._require_output()
        return HostRequest(partial(output.requests.secret, self.info.run_id, name), output.loop)

    def resource(self, kind: type[T]) -> HostRequest[T]:
        output = self._require_output()
        return HostRequest(partial(output.requests.resources.get, kind), output.loop)

    def put_artifact(
        self, data: ArtifactData, kind: str, expires_ms: int | None
    ) -> HostRequest[ArtifactRef]:
        output = self._require_output()
        return HostRequest(partial(self._put, output, data, kind, expires_ms), output.loop)

    async def _put(
        self, output: AttemptOutput, data: ArtifactData, kind: str, expires_ms: int | None
    ) -> ArtifactRef:
        put = output.requests.put_artifact(self.info.run_id, data, kind, expires_ms)
        stored = await put
        if self.is_over:
            raise self.after_end_error(f"an artifact of kind {kind!r} is stored", "store it")
        self.artifacts = (*self.artifacts, stored)
        return stored

    def _require_output(self) -> AttemptOutput:
        assert self.output is not None  # noqa: S101 - the attempt runs
        self._require_process()
        return self.output

    def publish(self, name: str, value: object) -> None:
        if self.is_over or self.output is None:
            raise self.after_end_error(f"{name!r} is published", "publish")
        self._require_process()
        self.output.publish(self, name, value)

    def append(self, name: str, value: object) -> None:
        self._require_chunks().append(name, value)

    def flush(self) -> Awaitable[None]:
        return self._require_chunks().flush()

    def _require_chunks(self) -> Chunks:
        return self.chunks or self._require_output().chunks_of(self)

    def _require_process(self) -> None:
        """Refuse calls from a process that the task forked: they would not reach the host."""
        if self.output is not None:
            self.output.process.require()


OnOutcome = Callable[[Attempt, AttemptOutcome], Awaitable[object] | None]


class NestedCall:
    """A task called by another task: part of the same attempt, with a step id of its own. Implements `TaskContext`."""

    __slots__ = ("_attempt", "_nested_calls", "info")

    def __init__(self, attempt: Attempt, caller: Info, number: int) -> None:
        step = StepId(f"{caller.step}.{number}")
        self.info = msgspec.structs.replace(caller, step=step)
        self._attempt = attempt
        self._nested_calls = 0

    @property
    def key(self) -> str:
        return idempotency_text(self.info.run_id, self.info.step, self.info.logical_attempt)

    def nested(self) -> "NestedCall":
        self._nested_calls += 1
        return NestedCall(self._attempt, self.info, self._nested_calls - 1)

    def heartbeat(self) -> None:
        self._attempt.heartbeat()

    def secret(self, name: str) -> HostRequest[str]:
        return self._attempt.secret(name)

    def resource(self, kind: type[T]) -> HostRequest[T]:
        return self._attempt.resource(kind)

    def put_artifact(
        self, data: ArtifactData, kind: str, expires_ms: int | None
    ) -> HostRequest[ArtifactRef]:
        return self._attempt.put_artifact(data, kind, expires_ms)

    def publish(self, name: str, value: object) -> None:
        self._attempt.publish(name, value)

    def append(self, name: str, value: object) -> None:
        self._attempt.append(name, value)

    def flush(self) -> Awaitable[None]:
        return self._attempt.flush()
