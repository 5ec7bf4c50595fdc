"""The status of a run, as callers see it."""

from enum import StrEnum
from typing import TypeVar

from perdure.core.errors import (
    RunDiverged,
)
from perdure.core.journal.state import Status
from perdure.store.rows.records import Run

R = TypeVar("R")
T = TypeVar("T")


class RunStatus(StrEnum):
    """The state of a run. One that is `pending` has not begun; those that are `diverged` or `parked` wait until their
    cause is fixed."""

    PENDING = "pending"
    APPROVED = "approved"
    RUNNING = "running"
    BLOCKED = "blocked"
    PAUSED = "paused"
    CANCELLING = "cancelling"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    CONTINUED = "continued"
    DIVERGED = "diverged"
    PARKED = "parked"


def status_of(run: Run) -> RunStatus:
    if run.damage is not None:
        return RunStatus.PARKED
    return shown_status(run.status, run.parked)


def shown_status(status: Status, parked: str | None) -> RunStatus:
    """The state that users see, from the columns of the run's row."""
    if parked is not None:
        diverged = parked.startswith(RunDiverged.code)
        return RunStatus.DIVERGED if diverged else RunStatus.PARKED
    return RunStatus(status.value)
