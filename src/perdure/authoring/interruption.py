"""What ends a workflow, or takes it out of memory. None of it is an `Exception`, so none is caught by mistake."""

from asyncio import CancelledError
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perdure.authoring.call import Call


class Cancelled(CancelledError):
    """The run, or this branch of it, is to stop. Clean up with durable steps, and raise it again."""


class Evicted(BaseException):
    """The coroutine leaves memory; the run goes on later, elsewhere. Verbs do nothing now."""


class Continued(BaseException):
    """The run ends here, and goes on as a new one. Clean up on the way out, with durable steps if need be."""

    def __init__(self, call: "Call[Any]", payload: bytes) -> None:
        super().__init__(call)
        self.call = call
        self.payload = payload
