"""Coroutines that the engine itself makes, and what it says to those that it can't drive."""

from typing import Any, NoReturn

from perdure.authoring.call import Operation
from perdure.core.errors import ForeignAwait


async def refuse(error: Exception) -> NoReturn:
    """A body that fails because its input can't be read."""
    raise error


async def wait_for(operation: Operation[Any]) -> Any:
    """An operation as a branch of its own."""
    return await operation


def foreign_await(name: str, line: str, awaited: object) -> ForeignAwait:
    """What a program gets that awaits something of the event loop's. That is cancelled: nobody waits for it."""
    what = "asyncio.sleep(0) or a bare yield" if awaited is None else repr(awaited)[:200]
    cancel = getattr(awaited, "cancel", None)
    if callable(cancel):
        cancel()
    return ForeignAwait(
        f"workflow {name!r} awaits something that is not durable: {what} ({line})",
        "use perdure.sleep, perdure.gather and perdure.first; do I/O such as HTTP in a @task",
    )
