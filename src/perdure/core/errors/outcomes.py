"""What became of a step or a run."""

from typing import ClassVar, Self

from perdure.core.errors.base import PerdureError


class Outcome(PerdureError):
    code = "outcome"


class TaskFailed(Outcome):
    """`type_name`, `message` and `traceback` are those of the exception, as text."""

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
    """The step had begun when its host died, and is not begun again; its effect may have happened."""

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
        """What was given for it; empty if nothing was."""
        return "" if self.remedy == self._WITHOUT_REASON else self.remedy


class RunInterrupted(Outcome):
    """A run was ended by an interrupt activity. `status` is the code that it gave."""

    code = "run-interrupted"

    def __init__(self, what: str, remedy: str, status: int = 410) -> None:
        super().__init__(what, remedy)
        self.args = (what, remedy, status)
        self.status = status


class ResponseError(Outcome):
    """A step of a graph answered with the code of an error, which is its `status`."""

    code = "response-error"

    def __init__(
        self,
        what: str,
        remedy: str = "add an edge for errors, or mend what answers so",
        status: int = 500,
    ) -> None:
        super().__init__(what, remedy)
        self.args = (what, remedy, status)
        self.status = status


class RunDiverged(Outcome):
    """The run waits: its program is not the one that wrote its journal."""

    code = "run-diverged"
