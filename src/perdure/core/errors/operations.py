"""What goes wrong in operations of several processes."""

from typing import TYPE_CHECKING

from perdure.core.errors.base import PerdureError

if TYPE_CHECKING:
    from perdure.core.operations.data import OperationFailedInfo


class OperationError(PerdureError):
    """An operation of `perdure.operations` that can not do what it was asked to."""

    code = "operation"


class OperationFailed(OperationError):
    """A participant crashed, or somebody aborted the operation: its clean-up has begun. `info` says why."""

    code = "operation-failed"

    def __init__(self, what: str, remedy: str, info: "OperationFailedInfo") -> None:
        super().__init__(what, remedy)
        self.args = (what, remedy, info)
        self.info = info


class ParticipantFenced(OperationFailed):
    """This participant was not heard of for too long and taken for dead: its calls were given up."""

    code = "participant-fenced"


class OperationOver(OperationError):
    """The operation is completed, or over and no backup of it kept: it takes nothing more."""

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
    """The call has no result. What its work raised is the cause."""

    code = "call-failed"


class WorkerFailed(OperationError):
    """A process ended without a result; `exit_code` is negative if a signal ended it."""

    code = "worker-failed"

    def __init__(self, what: str, remedy: str, exit_code: int) -> None:
        super().__init__(what, remedy)
        self.args = (what, remedy, exit_code)
        self.exit_code = exit_code


class CorruptOperation(OperationError):
    """The ledger of an operation that can't be read."""

    code = "corrupt-operation"
