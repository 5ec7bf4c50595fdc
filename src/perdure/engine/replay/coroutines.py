"""Coroutines: how a program's are driven, those that the engine makes, and those that it can't drive."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, NoReturn

from perdure.authoring.call import Operation
from perdure.core.errors import ForeignAwait

_INSTEAD = "use perdure.sleep, perdure.gather and perdure.first; do I/O such as HTTP in a @task"


def drive_alone(
    drive: Callable[[], None], left: Callable[[AsyncGenerator[Any, Any]], None]
) -> None:
    """Call `drive` as if no task of asyncio's were running.

    What attaches itself to the current task, such as `asyncio.timeout`, says so and does not reach the host's. An
    async generator that the program leaves before its end goes to `left`, and not to the event loop.
    """
    loop = asyncio._get_running_loop()
    task = None if loop is None else asyncio.current_task(loop)
    hooks = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(None, left)
    if task is not None:
        asyncio.tasks._leave_task(task.get_loop(), task)
    try:
        drive()
    finally:
        if task is not None:
            asyncio.tasks._enter_task(task.get_loop(), task)
        sys.set_asyncgen_hooks(*hooks)


def send_or_throw(coroutine: Coroutine[Any, Any, Any], thrown: BaseException | None) -> Any:
    """What the coroutine waits for next."""
    return coroutine.send(None) if thrown is None else coroutine.throw(thrown)


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
    if isinstance(awaited, asyncio.Future):
        awaited.add_done_callback(_retrieve)
    return ForeignAwait(
        f"workflow {name!r} awaits something that is not durable: {what} ({line})",
        _INSTEAD,
    )


def refused_by_asyncio(name: str, error: BaseException) -> BaseException:
    """What to tell of an error of a program: where asyncio refuses it for want of a task, what to use instead."""
    if type(error) is not RuntimeError or not _is_raised_in_asyncio(error):
        return error
    told = ForeignAwait(f"workflow {name!r} uses asyncio, which says: {error}", _INSTEAD)
    told.__cause__ = error
    return told.with_traceback(error.__traceback__)


def _is_raised_in_asyncio(error: BaseException) -> bool:
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return last is not None and last.tb_frame.f_globals.get("__package__") == "asyncio"


def _retrieve(future: asyncio.Future[Any]) -> None:
    """Nobody is to be told that nobody asked."""
    if not future.cancelled():
        future.exception()
