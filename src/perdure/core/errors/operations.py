"""Errors of operations of several processes."""

from typing import TYPE_CHECKING

from perdure.core.errors.base import PerdureError

if TYPE_CHECKING:
    from perdure.core.operations.data import OperationFailedInfo


class OperationError(PerdureError):
    """Base of the errors of `perdure.operations`."""

    code = "operation"


class OperationFailed(OperationError):
    """A participant crashed, or the operation was aborted: its clean-up has begun. `info` says why."""

    code = "operation-failed"

    def __init__(self, what: str, remedy: str, info: "OperationFailedInfo") -> None:
        super().__init__(what, remedy)
        self.args = (what, remedy, info)
        self.info = info


class ParticipantFenced(OperationFailed):
    """This participant sent no heartbeat for too long and was declared dead: its calls were abandoned."""

    code = "participant-fenced"


class OperationOver(OperationError):
    """The operation has completed, or has ended and no backup was kept: it accepts nothing more."""

    code = "operation-over"


class UnknownOperation(OperationError):
    """There is no operation of that id."""

    code = "unknown-operation"


class CallsOpen(OperationError):
    """The operation can't be completed while calls are under way."""

    code = "calls-open"


class CallOver(OperationError):
    """The call has ended already, or has no result yet."""

    code = "call-over"


class CallFailed(OperationError):
    """The call has no result. The exception that its work raised is the cause."""

    code = "call-failed"


class WorkerFailed(OperationError):
    """A process ended without a result; `exit_code` is negative if a signal ended it."""

    code = "worker-failed"

    def __init__(self, what: str, remedy: str, exit_code: int) -> None:
        super().__init__(what, remedy)
        self.args = (what, remedy, exit_code)
        self.exit_code = exit_code


class WorkerTimedOut(WorkerFailed):
    """A process gave no result in time, and was killed."""

    code = "worker-timed-out"


class CorruptOperation(OperationError):
    """The ledger of an operation that can't be read."""

    code = "corrupt-operation"
