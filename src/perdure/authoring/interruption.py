"""What is thrown into a workflow from outside. None of it is an `Exception`, so none is caught by mistake."""

from asyncio import CancelledError


class Cancelled(CancelledError):
    """The run, or this branch of it, is to stop. Clean up with durable steps, and raise it again."""


class Evicted(BaseException):
    """The coroutine leaves memory; the run goes on later, elsewhere. Verbs do nothing now."""
