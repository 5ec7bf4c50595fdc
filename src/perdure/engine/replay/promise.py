"""Promises: places in a run's call tree that will have an outcome."""

from collections.abc import Sequence
from enum import Enum
from typing import Any

import msgspec

from perdure.authoring.call import Call, Operation
from perdure.authoring.contradictions import unreadable_result
from perdure.authoring.failures import decode_failure
from perdure.authoring.signal import Receive
from perdure.authoring.task import Task
from perdure.core.codec import Codec
from perdure.core.errors import NotDecodable
from perdure.core.ids import RunId, StepId
from perdure.core.replay.doubt import Resolution


class Place(Enum):
    """Where a promise is kept."""

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


class DurablePromise(msgspec.Struct, eq=False):
    """One place. `attempt` is the last that started; `is_running` says that no outcome of it is known."""

    step: StepId
    place: Place
    operation: Operation[Any]
    owner: Any
    """The fiber that began it, and must not end before it."""
    codec: Codec
    attempt: int = 0
    doubts: int = 0
    stops: int = 0
    """Those of its doubts in which its host had not died."""
    begun_at_ms: int = 0
    """When its last attempt began, of a suspect that another host has begun; of others nobody asks."""
    is_running: bool = False
    is_settled: bool = False
    is_detached: bool = False
    is_given_up: bool = False
    """It was in doubt, and is to fail rather than begin again."""
    settled_at: int = 0
    retry_at_ms: int = 0
    input: bytes = b""
    """The arguments as they were when it was scheduled."""
    ok: bool = False
    payload: bytes | None = None
    value: Any = None
    failure: BaseException | None = None
    waiters: Sequence[tuple[Any, Any]] = ()
    fiber: Any = None
    child_run: RunId | None = None

    @property
    def name(self) -> str:
        """What is called, as the journal has it."""
        operation = self.operation
        if isinstance(operation, Call):
            return operation.definition.name
        return getattr(operation, "name", type(operation).__name__)

    @property
    def call(self) -> Call[Any]:
        """The call that it is, of a task or of a workflow."""
        assert isinstance(self.operation, Call)  # noqa: S101 - the place says so
        return self.operation

    @property
    def task(self) -> Task[..., Any]:
        """The task that is called."""
        assert isinstance(self.operation, Call)  # noqa: S101 - the place says so
        definition = self.operation.definition
        assert isinstance(definition, Task)  # noqa: S101 - the place says so
        return definition

    @property
    def deaths(self) -> int:
        """How often its host died while it was under way."""
        return self.doubts - self.stops

    def doubt(self, count: int, resolution: Resolution, *, is_stopped: bool) -> None:
        """It was under way when its host died, so many times, or was stopped."""
        self.doubts += count
        self.stops += count if is_stopped else 0
        self.is_given_up = resolution is Resolution.FAIL
        if self.place is Place.LOCAL:
            # A queued attempt keeps its number, whoever claims it.
            self.is_running = False

    def outcome(self) -> Any:
        """The value, decoded anew for each who asks; or raises the failure."""
        if self.failure is not None:
            raise self.failure
        if self.place is Place.BRANCH or self.place is Place.TIMER:
            return self.value
        operation = self.operation
        if isinstance(operation, Receive):
            return self.codec.decode(self.payload or b"null", operation.signal.of)
        if not self.ok:
            raise decode_failure(self.codec, self.payload, what=self._what)
        assert isinstance(operation, Call)  # noqa: S101 - the place says so
        try:
            return operation.definition.signature.unpack_result(self.codec, self.payload or b"null")
        except NotDecodable as error:
            raise unreadable_result(self._what, error) from error

    @property
    def _what(self) -> str:
        """What it is, for people."""
        noun = "run" if self.place is Place.CHILD else "task"
        return f"{noun} {self.name!r} (step {self.step})"
