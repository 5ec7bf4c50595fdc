"""Log notes of a run: what its host logs once the commit that contains it is durable.

Notes are collected where facts are fed, never during replay. A turn that is undone drops its notes, so only committed
facts are logged.
"""

from typing import NamedTuple

from perdure.core.ids import RunId, StepId
from perdure.core.replay.doubt import Resolution


class RunStarted(NamedTuple):
    """`parent` is the run and step that started this run as a child, `continues` the run before it in its chain."""

    parent: str | None
    continues: RunId | None


class RetryScheduled(NamedTuple):
    """An attempt failed and the policy allows another. `noun` is "task" or "child run"; `payload` the stored error."""

    noun: str
    step: StepId
    task: str
    attempt: int
    attempts: int
    retry_at_ms: int
    payload: bytes
    queue: str | None


class StepFailed(NamedTuple):
    """A step failed for good: the program gets the error. `noun` is "task" or "child run"."""

    noun: str
    step: StepId
    task: str
    attempt: int
    payload: bytes
    queue: str | None


class PauseBegun(NamedTuple):
    """An operator paused the run."""

    by: str
    reason: str


class PauseEnded(NamedTuple):
    """The run was resumed, or cancelled while it was paused."""


class StepParked(NamedTuple):
    """A step failed, and waits for an operator. The fields are those of `StepFailed`."""

    noun: str
    step: StepId
    task: str
    attempt: int
    payload: bytes
    queue: str | None


class StepDoubted(NamedTuple):
    """An attempt was under way when its host died. `total` counts the doubts about the step."""

    step: StepId
    task: str
    attempt: int
    total: int
    resolution: Resolution
    queue: str | None


LogNote = (
    PauseBegun | PauseEnded | RunStarted | RetryScheduled | StepFailed | StepParked | StepDoubted
)
