"""Outcomes of steps and runs."""

from typing import ClassVar, Self

from perdure.core.errors.base import PerdureError


class Outcome(PerdureError):
    code = "outcome"


class TaskFailed(Outcome):
    """`type_name`, `message` and `traceback` of the exception, as text."""

    code = "task-failed"

    def __init__(
        self, what: str, remedy: str, type_name: str, message: str, traceback: str
    ) -> None:
        super().__init__(what, remedy)
        self.args = (what, remedy, type_name, message, traceback)
        self.type_name = type_name
        self.message = message
        self.traceback = traceback


class RunFailed(TaskFailed):
    """A run raised an exception that can't be rebuilt here; its parts are those of `TaskFailed`."""

    code = "run-failed"


class StepCancelled(Outcome):
    """The step was cancelled before it had a result."""

    code = "step-cancelled"


class StepInDoubt(Outcome):
    """The step was running when its host died, and is not repeated; its effect may have happened."""

    code = "step-in-doubt"


class NotDone(Outcome):
    """Raised by a reconcile function (`@task(on_doubt=...)`): the effect did not happen, so the task runs."""

    code = "not-done"

    def __init__(
        self, what: str = "the effect did not happen", remedy: str = "let the task run"
    ) -> None:
        super().__init__(what, remedy)


class RunCancelled(Outcome):
    """The run was cancelled, and has no result."""

    code = "run-cancelled"

    _WITHOUT_REASON: ClassVar = "it has no result"

    @classmethod
    def of(cls, run_id: str, reason: str) -> Self:
        return cls(f"run {run_id!r} was cancelled", reason or cls._WITHOUT_REASON)

    @property
    def reason(self) -> str:
        """The reason that the caller gave; empty if none."""
        return "" if self.remedy == self._WITHOUT_REASON else self.remedy


class RunInterrupted(Outcome):
    """An interrupt activity ended the run. `status` is its code."""

    code = "run-interrupted"

    def __init__(self, what: str, remedy: str, status: int = 410) -> None:
        super().__init__(what, remedy)
        self.args = (what, remedy, status)
        self.status = status


class ResponseError(Outcome):
    """A step of a graph responded with an error code, which is `status`."""

    code = "response-error"

    def __init__(
        self,
        what: str,
        remedy: str = "add an error edge, or fix the task that responds with this code",
        status: int = 500,
    ) -> None:
        super().__init__(what, remedy)
        self.args = (what, remedy, status)
        self.status = status


class RequestRejected(Outcome):
    """The run rejected a request. `reason` is what it said."""

    code = "request-rejected"

    @property
    def reason(self) -> str:
        return self.remedy


class RequestUnanswered(Outcome):
    """The run ended without an answer to a request."""

    code = "request-unanswered"


class RunDiverged(Outcome):
    """The run is parked: its program does not match its journal."""

    code = "run-diverged"
