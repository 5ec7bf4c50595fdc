"""Exceptions that end a workflow or evict it from memory. None is an `Exception`, so `except Exception` misses them."""

from asyncio import CancelledError
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perdure.authoring.call import Call


class Cancelled(CancelledError):
    """The run, or this branch of it, is cancelled. Clean up with durable steps, then raise it again."""


class Evicted(BaseException):
    """The host evicts the coroutine from memory; a replay resumes the run later. Until then verbs do nothing."""


class PayloadUnavailable(BaseException):
    """A large payload can't be read now; the cause says why. The host undoes the turn, and repeats it later."""


class Continued(BaseException):
    """The run ends and continues as a new run. `finally` blocks may clean up with durable steps."""

    def __init__(self, call: "Call[Any]", payload: bytes) -> None:
        super().__init__(call)
        self.call = call
        self.payload = payload
