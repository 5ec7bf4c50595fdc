"""Drives a program's coroutines apart from asyncio, and explains what can't be awaited in one."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine
from types import FrameType
from typing import Any, Final, NoReturn

from perdure.authoring.call import DurableOperation
from perdure.core.errors import ForeignAwait

_INSTEAD = "await calls, perdure's verbs, or what asyncio makes in the workflow; do I/O such as HTTP in a @task"

_OTHER_LOOPS = (
    ("from a running event loop", "await the coroutine: the workflow's own loop runs already"),
    ("different event loop", "make it in the workflow; each run has a loop of its own"),
    ("different loop", "make it in the workflow; each run has a loop of its own"),
)
"""What asyncio says of another loop, and the remedy."""


_ONE_TASK_PER_THREAD: Final = sys.version_info >= (3, 14)
"""Whether a thread has one current task. Before, each loop has one, and the host's does not hinder the run's."""


def drive_alone(
    drive: Callable[[], None],
    loop: asyncio.AbstractEventLoop,
    left: Callable[[AsyncGenerator[Any, Any]], None],
) -> None:
    """Call `drive` as if `loop` were running and not the host's loop.

    So what attaches itself to the current task or the running loop, such as `asyncio.timeout`, attaches to the run's
    own. An async generator that the program abandons before its end is passed to `left`, not to the event loop.
    """
    hosts = asyncio._get_running_loop()
    task = asyncio.current_task(hosts) if _ONE_TASK_PER_THREAD and hosts is not None else None
    hooks = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(None, left)
    if task is not None:
        asyncio.tasks._leave_task(task.get_loop(), task)
    asyncio._set_running_loop(loop)
    try:
        drive()
    finally:
        asyncio._set_running_loop(hosts)
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
    what = repr(awaited)[:200]
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
    """Replace an error by which asyncio refuses another loop by one that names what to use instead.

    Returns any other error as it is.
    """
    if type(error) is not RuntimeError or not _is_raised_in_asyncio(error):
        return error
    remedy = next((remedy for text, remedy in _OTHER_LOOPS if text in str(error)), None)
    if remedy is None:
        return error
    what = f"workflow {name!r} uses asyncio, which says: {error}"
    explained = ForeignAwait(what, remedy)
    explained.__cause__ = error
    return explained.with_traceback(error.__traceback__)


def _is_raised_in_asyncio(error: BaseException) -> bool:
    frame = _last_frame(error)
    return frame is not None and frame.f_globals.get("__package__") == "asyncio"


def _last_frame(error: BaseException) -> FrameType | None:
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return None if last is None else last.tb_frame


def _retrieve(future: asyncio.Future[Any]) -> None:
    """Keep asyncio from logging that the exception was never retrieved."""
    if not future.cancelled():
        future.exception()
