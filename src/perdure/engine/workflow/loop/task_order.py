"""The order of tasks that asyncio creates from a set.

`asyncio.as_completed` makes a set of what it is given and then a task of each member, in the order of their addresses,
which differs in a replay. So when it asks for the first task, all are created, in the order in which they were given.
"""

import asyncio
import sys
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, Final

from perdure.authoring.call import DurableOperation
from perdure.core.errors import ForeignAwait

if TYPE_CHECKING:
    from perdure.engine.workflow.loop.event_loop import WorkflowLoop


def _maker() -> tuple[CodeType, str]:
    """The function of asyncio that makes the set, and the name of its argument."""
    iterator = getattr(asyncio.tasks, "_AsCompletedIterator", None)
    if iterator is not None:  # since Python 3.13
        return iterator.__init__.__code__, "aws"
    return asyncio.as_completed.__code__, "fs"


_MAKER, _ARGUMENT = _maker()

_FILE: Final = asyncio.ensure_future.__code__.co_filename
"""Between the maker and the loop are only functions of this file."""


class TaskOrder:
    """The tasks that were created together and not asked for yet."""

    def __init__(self) -> None:
        self._tasks: dict[int, Any] = {}
        """By the identity of the coroutine or awaitable."""

    def task_of(
        self, loop: "WorkflowLoop", coro: Any, operation: DurableOperation[Any] | None
    ) -> Any:
        """The task for `coro` if it is created from a set; None if it is not. `operation` is what it wraps."""
        key = id(coro if operation is None else operation)
        if key not in self._tasks:
            frame = _frame_of_maker()
            if frame is None:
                return None
            self._create(loop, frame.f_locals[_ARGUMENT])
        if key not in self._tasks:
            raise ForeignAwait(
                "asyncio.as_completed was given an iterator, or an awaitable that it wraps, and would make tasks "
                "in an order that is not the same in a replay",
                "pass a list of coroutines, calls or tasks",
            )
        task = self._tasks.pop(key)
        if operation is not None:
            coro.close()
        return task

    def _create(self, loop: "WorkflowLoop", given: Any) -> None:
        if isinstance(given, list | tuple | dict):
            for each in given:
                if id(each) not in self._tasks and (
                    isinstance(each, DurableOperation) or asyncio.iscoroutine(each)
                ):
                    self._tasks[id(each)] = loop.start(each)


def _frame_of_maker() -> FrameType | None:
    frame: FrameType | None = sys._getframe(3)
    while frame is not None and (code := frame.f_code).co_filename == _FILE:
        if code is _MAKER:
            return frame
        frame = frame.f_back
    return None


def wrapped_operation(coro: Any) -> DurableOperation[Any] | None:
    """The call or verb that asyncio has wrapped in a coroutine, to make a task of it."""
    if getattr(coro, "__name__", None) != "_wrap_awaitable":
        return None
    frame = getattr(coro, "cr_frame", None) or getattr(coro, "gi_frame", None)
    awaitable = None if frame is None else frame.f_locals.get("awaitable")
    return awaitable if isinstance(awaitable, DurableOperation) else None
