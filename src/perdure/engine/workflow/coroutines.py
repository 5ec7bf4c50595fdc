"""Drives a program's coroutines apart from asyncio, and explains what can't be awaited in one."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine
from types import FrameType
from typing import Any, NoReturn

from perdure.authoring.call import DurableOperation
from perdure.core.errors import ForeignAwait

_NO_TASK = "cannot create weak reference to 'NoneType' object"

_INSTEAD = "use perdure.sleep, perdure.gather and perdure.first; do I/O such as HTTP in a @task"


def drive_alone(
    drive: Callable[[], None], left: Callable[[AsyncGenerator[Any, Any]], None]
) -> None:
    """Call `drive` as if no asyncio task were running.

    So what attaches itself to the current task, such as `asyncio.timeout`, raises and does not attach to the host's
    task. An async generator that the program abandons before its end is passed to `left`, not to the event loop.
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
    """Resume the coroutine. Returns what it waits for next."""
    return coroutine.send(None) if thrown is None else coroutine.throw(thrown)


async def refuse(error: Exception) -> NoReturn:
    """A body that only raises: the run's input can't be read."""
    raise error


async def wait_for(operation: DurableOperation[Any]) -> Any:
    """A coroutine that awaits one operation, to run it as a branch."""
    return await operation


def foreign_await(name: str, line: str, awaited: object) -> ForeignAwait:
    """The error for a program that awaits something of the event loop. Cancels what it awaited."""
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
    """Replace an error that asyncio raises for lack of a current task by one that names what to use instead.

    Returns any other error as it is.
    """
    if type(error) is RuntimeError and _is_raised_in_asyncio(error):
        what = f"workflow {name!r} uses asyncio, which says: {error}"
    elif type(error) is TypeError and str(error) == _NO_TASK:
        # anyio, and so httpx, keeps a weak reference to the current task.
        what = f"workflow {name!r} uses a library that needs a running asyncio task ({_file_of(error)})"
    else:
        return error
    explained = ForeignAwait(what, _INSTEAD)
    explained.__cause__ = error
    return explained.with_traceback(error.__traceback__)


def _is_raised_in_asyncio(error: BaseException) -> bool:
    frame = _last_frame(error)
    return frame is not None and frame.f_globals.get("__package__") == "asyncio"


def _file_of(error: BaseException) -> str:
    frame = _last_frame(error)
    return "unknown file" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _last_frame(error: BaseException) -> FrameType | None:
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return None if last is None else last.tb_frame


def _retrieve(future: asyncio.Future[Any]) -> None:
    """Keep asyncio from logging that the exception was never retrieved."""
    if not future.cancelled():
        future.exception()
