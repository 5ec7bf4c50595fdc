"""The waits of a run: one structure for each kind, with a line of text.

Every wait has the step, and `since_ms`: when it began, by the store. A wait that is not `awaited` is open, but the
program does not await its result yet. Times are milliseconds since 1970, in UTC.
"""

from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import msgspec

from perdure.core.ids import HostId, RunId, StepId


def format_time(at_ms: int) -> str:
    """An ISO time in UTC."""
    try:
        at = datetime.fromtimestamp(at_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{at_ms} ms"
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class TimerWait(msgspec.Struct, frozen=True, kw_only=True):
    """A timer that fires at `until_ms`."""

    step: StepId
    since_ms: int
    until_ms: int
    awaited: bool = True

    def __str__(self) -> str:
        return f"{self.step}: sleeps until {format_time(self.until_ms)}, since {format_time(self.since_ms)}"


class SignalWait(msgspec.Struct, frozen=True, kw_only=True):
    """A signal. `name` is its name, or a graph's topic; `None` if the journal does not name it.

    A graph's hook may wait for a `key`. `until_ms` is when the wait times out, if it does. If a person answers, `ask`
    is what the person should see, `who` is the person or group, and `schema` the JSON Schema of the answer.
    """

    step: StepId
    name: str | None
    since_ms: int
    until_ms: int | None = None
    key: str | None = None
    awaited: bool = True
    ask: str | None = None
    who: str | None = None
    schema: dict[str, Any] | None = None

    def __str__(self) -> str:
        what = "a signal" if self.name is None else f"signal {self.name!r}"
        what += "" if self.key is None else f" with key {self.key!r}"
        limit = "" if self.until_ms is None else f", times out at {format_time(self.until_ms)}"
        asked = "" if self.ask is None else f"; asks {self.who or 'a person'}: {self.ask}"
        return f"{self.step}: waits for {what}{limit}, since {format_time(self.since_ms)}{asked}"


class TaskState(StrEnum):
    """State of a task."""

    STARTING = "starting"
    """Its host has not started it yet: it needs a slot, or the run needs a host."""

    QUEUED = "queued"
    """On its queue; no host has claimed it."""

    RUNNING = "running"

    REPORTED = "reported"
    """It ended; the owner of the run has not processed the outcome yet."""

    INTERRUPTED = "interrupted"
    """It had started, and no host owns the run now. The next owner finds the step in doubt."""


class TaskWait(msgspec.Struct, frozen=True, kw_only=True):
    """A task. `host` is where it runs; `attempt` counts from 1; `queue` is `None` if it needs none."""

    step: StepId
    task: str
    state: TaskState
    since_ms: int
    attempt: int
    queue: str | None = None
    host: HostId | None = None
    awaited: bool = True

    def __str__(self) -> str:
        where = "" if self.queue is None else f" on queue {self.queue!r}"
        where += "" if self.host is None else f" at host {self.host}"
        said = f"task {self.task!r} is {self.state}{where}, attempt {self.attempt}"
        return f"{self.step}: {said}, since {format_time(self.since_ms)}"


class RetryWait(msgspec.Struct, frozen=True, kw_only=True):
    """A task that failed and is tried again at `until_ms`; `attempt` is the next one, `error` what the last raised."""

    step: StepId
    task: str
    since_ms: int
    until_ms: int
    attempt: int
    error: str
    queue: str | None = None
    awaited: bool = True

    def __str__(self) -> str:
        where = "" if self.queue is None else f" on queue {self.queue!r}"
        return (
            f"{self.step}: attempt {self.attempt} of task {self.task!r}{where} follows at "
            f"{format_time(self.until_ms)}, after {self.error}, since {format_time(self.since_ms)}"
        )


class OperatorWait(msgspec.Struct, frozen=True, kw_only=True):
    """A task that failed for good and is parked: an operator retries or skips it. `error` is what it raised last."""

    step: StepId
    task: str
    since_ms: int
    attempt: int
    logical_attempt: int
    error: str
    queue: str | None = None
    awaited: bool = True

    def __str__(self) -> str:
        again = "" if self.logical_attempt == 1 else f", retry {self.logical_attempt - 1}"
        return (
            f"{self.step}: waits for an operator since {format_time(self.since_ms)}: attempt {self.attempt} of task "
            f"{self.task!r}{again} failed with {self.error}"
        )


class ChildWait(msgspec.Struct, frozen=True, kw_only=True):
    """A child run and its status."""

    step: StepId
    program: str
    run_id: RunId
    status: str
    since_ms: int
    awaited: bool = True

    def __str__(self) -> str:
        child = f"run {self.run_id} of {self.program!r}, which is {self.status}"
        return f"{self.step}: waits for {child}, since {format_time(self.since_ms)}"


class AnswerWait(msgspec.Struct, frozen=True, kw_only=True):
    """A graph's task responded with 202: `handle.respond` answers for it."""

    step: StepId
    task: str
    since_ms: int
    awaited: bool = True

    def __str__(self) -> str:
        what = f"an answer for task {self.task!r}, which responded with 202"
        return f"{self.step}: waits for {what}, since {format_time(self.since_ms)}"


class JoinWait(msgspec.Struct, frozen=True):
    """A node of a graph that waits for more of its predecessors to be resolved."""

    step: StepId
    required: int
    resolved: int

    def __str__(self) -> str:
        return f"{self.step}: joins {self.required} predecessors, {self.resolved} are resolved"


AnyWait = (
    TimerWait | SignalWait | TaskWait | RetryWait | OperatorWait | ChildWait | AnswerWait | JoinWait
)
