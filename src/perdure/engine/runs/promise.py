"""Promises: steps of a run that will have an outcome."""

from collections.abc import Sequence
from enum import Enum
from typing import Any

import msgspec

from perdure.authoring.call import Call, DurableOperation
from perdure.authoring.context import WORKFLOW
from perdure.authoring.interruption import PayloadUnavailable
from perdure.authoring.retry import Retry
from perdure.authoring.signal import Receive
from perdure.authoring.task import Task
from perdure.authoring.values.failures import decode_failure
from perdure.authoring.values.result_types import unreadable_result
from perdure.core.codec import Codec
from perdure.core.errors import NotDecodable
from perdure.core.ids import Guid, RunId, StepId
from perdure.core.replay.doubt import Resolution


class PromiseKind(Enum):
    """What a promise waits for."""

    LOCAL = "local"
    """A task that this host executes."""

    QUEUED = "queued"
    """A task that any host of a queue executes."""

    CHILD = "child"
    """Another run."""

    BRANCH = "branch"
    """A coroutine of this run."""

    TIMER = "timer"
    SIGNAL = "signal"


_NO_TASK: Any = None


class DurablePromise(msgspec.Struct, eq=False):
    """The outcome of one step, settled or open. `attempt` is the last one that started; `is_running`: it has no outcome
    yet."""

    step: StepId
    kind: PromiseKind
    operation: DurableOperation[Any]
    owner: Any
    """The fiber that began the step, and must not end before it."""
    codec: Codec
    attempt: int = 0
    doubts: int = 0
    stops: int = 0
    """How many of the doubts were stops of a host, not deaths."""
    begun_at_ms: int = 0
    """When the last attempt began. Set only for suspects that another host started."""
    is_running: bool = False
    is_settled: bool = False
    is_detached: bool = False
    is_finishing: bool = False
    """The run is cancelled, but lets the attempt under way end. There is no further attempt."""
    is_unwanted: bool = False
    """The run ends as soon as other steps have finished. There is no further attempt."""
    is_given_up: bool = False
    """The step was in doubt and must fail."""
    is_parked: bool = False
    """The logical attempt has failed: an operator retries or skips the step."""
    is_held: bool = False
    """Its outcome is journaled; the program learns it later."""
    logical_attempt: int = 1
    earlier_attempts: int = 0
    """Attempts of earlier logical attempts: they don't count as tries of this one."""
    settled_at: int = 0
    retry_at_ms: int = 0
    retry: Retry | None = None
    """The retry rule of a child run. A task has its own."""
    input: bytes = b""
    """The encoded arguments, as scheduled."""
    task: Task[..., Any] = _NO_TASK
    """The called task. Only LOCAL and QUEUED promises have one."""
    ok: bool = False
    payload: bytes | None = None
    guid: Guid | None = None
    """The message that brought the signal."""
    value: Any = None
    failure: BaseException | None = None
    waiters: Sequence[tuple[Any, Any]] = ()
    fiber: Any = None
    child_run: RunId | None = None

    @property
    def name(self) -> str:
        """The name of the called task, workflow or verb, as in the journal."""
        operation = self.operation
        if isinstance(operation, Call):
            return operation.definition.name
        return getattr(operation, "name", type(operation).__name__)

    @property
    def call(self) -> Call[Any]:
        """The call of a task or of a program."""
        assert isinstance(self.operation, Call)  # noqa: S101 - the kind implies it
        return self.operation

    @property
    def is_begun_task(self) -> bool:
        """Whether an attempt of a task is under way or in doubt. A queued task counts as begun, because the owner of
        the run does not know whether a host has claimed it."""
        if self.is_parked:
            return False
        if self.kind is PromiseKind.QUEUED:
            return True
        return self.kind is PromiseKind.LOCAL and self.attempt > 0 and not self.retry_at_ms

    def begin_logical_attempt(self) -> None:
        """An operator retries the step: it gets new budgets of retries and doubts."""
        self.is_parked = self.is_given_up = False
        self.logical_attempt += 1
        self.earlier_attempts = self.attempt
        self.doubts = self.stops = 0

    @property
    def deaths(self) -> int:
        """How often a host died during an attempt."""
        return self.doubts - self.stops

    def doubt(self, count: int, resolution: Resolution, *, is_stopped: bool) -> None:
        """Count doubts: an attempt was under way when its host died, or was stopped."""
        self.doubts += count
        self.stops += count if is_stopped else 0
        self.is_given_up = resolution is Resolution.FAIL
        if self.kind is PromiseKind.LOCAL:
            # A queued attempt keeps its number across claims.
            self.is_running = False

    def outcome(self) -> Any:
        """The value, decoded anew for each caller; or raises the failure."""
        try:
            if self.failure is not None:
                # A cancellation may have settled it whose `Cancelled` the coroutine has not got yet.
                pending = self.owner.take_pending()
                raise self.failure if pending is None else pending
            if self.kind is PromiseKind.BRANCH or self.kind is PromiseKind.TIMER:
                return self.value
            operation = self.operation
            if isinstance(operation, Receive):
                value = self.codec.decode(self.payload or b"null", operation.signal.of)
                return operation.received(value, self.guid)
            if not self.ok:
                context = WORKFLOW.get()
                home = None if context is None else context.home
                raise decode_failure(self.codec, self.payload, what=self._what, home=home)
            assert isinstance(operation, Call)  # noqa: S101 - the kind implies it
            try:
                return operation.definition.signature.unpack_result(
                    self.codec, self.payload or b"null"
                )
            except NotDecodable as error:
                raise unreadable_result(self._what, error) from error
        except PayloadUnavailable as error:
            self.owner.machine.interrupted = error
            raise

    @property
    def _what(self) -> str:
        """The step, for error texts."""
        noun = "run" if self.kind is PromiseKind.CHILD else "task"
        return f"{noun} {self.name!r} (step {self.step})"
