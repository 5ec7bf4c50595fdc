"""Snapshots: the state of a run as its contract events give it. Immutable: each projection makes a new one."""

from enum import StrEnum

import msgspec

from perdure.core.ids import RunId, StepId
from perdure.core.journal.events import ArtifactRef
from perdure.core.runs.contract_event import EngineRunRef


class SnapshotStatus(StrEnum):
    """The status of a run by the run contract."""

    PENDING = "PENDING"
    APPROVED = "APPROVED"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class StepStatus(StrEnum):
    """The status of a step by the run contract."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUCCESS = "SUCCESS"
    FAILED = "FAILED"
    SKIPPED = "SKIPPED"


class ApplicationError(msgspec.Struct, frozen=True):
    """An error of a step or a run. `code` is the type of the exception, or the stable code of one of Perdure's.

    `retryable`: another attempt could succeed, because the retry policy covers the error and only its number of
    attempts is used up, or because the step is parked. Errors of one cause have the same `fingerprint`.
    """

    code: str
    message: str
    retryable: bool = False
    fingerprint: str = ""


class RootCause(msgspec.Struct, frozen=True):
    """Why a run failed: the failed step whose error ended the run. `step` is `None` if the error is the program's."""

    error: ApplicationError
    run_id: RunId
    step: StepId | None = None


class SequenceGap(msgspec.Struct, frozen=True):
    """The event `expected` is missing: `found` came in its place."""

    expected: int
    found: int


class StepSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A step: a task, a child run, a branch, a timer, a wait for a signal, an activity of a graph.

    `name` is that of the task, program or signal, and `kind` is `function`, `http`, `run`, `branch`, `timer` or
    `signal`. `run_id` is the run of the chain that the step belongs to, and `child_run_id` the run that a step of kind
    `run` started. `engine_attempt` is the last physical attempt.
    """

    step: StepId
    run_id: RunId
    name: str = ""
    kind: str = ""
    status: StepStatus = StepStatus.PENDING
    logical_attempt: int = 1
    engine_attempt: int | None = None
    started_at_ms: int | None = None
    completed_at_ms: int | None = None
    artifacts: tuple[ArtifactRef, ...] = ()
    error: ApplicationError | None = None
    reason: str = ""
    """Why the step was skipped."""
    child_run_id: RunId | None = None
    is_parked: bool = False
    """Whether the step has failed and waits for an operator, who retries or skips it."""


class RunSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a run after the events up to `last_event_seq`; of a chain of runs, that of all as one.

    `run_id` is the first run of the chain and `current_run_id` the last. `last_event_seq` is the `offset` of the last
    event that was applied, -1 before the first. While an event is missing, `gap` says which, and later ones are not
    applied.
    """

    run_id: RunId
    status: SnapshotStatus = SnapshotStatus.PENDING
    last_event_seq: int = -1
    steps: tuple[StepSnapshot, ...] = ()
    artifacts: tuple[ArtifactRef, ...] = ()
    started_at_ms: int | None = None
    completed_at_ms: int | None = None
    total_duration_ms: int | None = None
    failed_steps: int = 0
    """How many steps are `FAILED` now."""
    error: ApplicationError | None = None
    """The error that the run failed with."""
    root_cause: RootCause | None = None
    cancel_reason: str | None = None
    """The reason of the cancel request; `None` without one."""
    current_run_id: RunId | None = None
    engine_run_ref: EngineRunRef | None = None
    gap: SequenceGap | None = None

    @property
    def is_stale(self) -> bool:
        """Whether an event is missing, so that later ones are not applied."""
        return self.gap is not None

    @property
    def is_over(self) -> bool:
        """Whether the run has ended."""
        return self.completed_at_ms is not None

    def step(self, step: str) -> StepSnapshot | None:
        """The step of that id; in a chain, that of the last run that has it."""
        return next((each for each in reversed(self.steps) if each.step == step), None)

    def __repr__(self) -> str:
        steps = f"{len(self.steps)} steps"
        if self.failed_steps:
            steps += f", {self.failed_steps} failed"
        stale = ", stale" if self.is_stale else ""
        return f"<RunSnapshot {self.run_id} {self.status} at {self.last_event_seq}: {steps}{stale}>"
