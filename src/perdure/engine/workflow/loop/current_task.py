"""What the body and the branches of a workflow show to asyncio: they are its current task while they run.

`asyncio.timeout`, `asyncio.TaskGroup` and anyio attach themselves to the current task and cancel it. A fiber is driven
by the machine and not by asyncio, so it has the methods of a task that they call, and no outcome to wait for.
"""

import asyncio
from abc import ABC, abstractmethod
from asyncio import AbstractEventLoop, CancelledError, Future, InvalidStateError
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import Context, copy_context
from functools import partial
from typing import Any, NoReturn

from perdure.core.errors import ForeignAwait
from perdure.engine.workflow.loop.scope_order import is_scopes


@contextmanager
def as_current_task(loop: AbstractEventLoop, task: Any) -> Iterator[None]:
    """A block whose current task in `loop` is `task`, unless another one runs."""
    try:
        asyncio.tasks._enter_task(loop, task)
    except RuntimeError:
        yield
        return
    try:
        yield
    finally:
        asyncio.tasks._leave_task(loop, task)


class CurrentTask(ABC):
    """The methods of `asyncio.Task` for a fiber."""

    __slots__ = (
        "__weakref__",
        "cancel_message",
        "cancels",
        "coroutine",
        "future",
        "is_cancel_due",
        "machine",
        "name",
        "number",
    )

    machine: Any
    coroutine: Any
    number: int
    """Its place in the order in which the run's fibers and tasks were created, from 1."""
    name: str
    future: Any
    """The future of the loop that it waits for."""
    cancels: int
    """Requests to cancel it that were not taken back: what `cancelling()` returns."""
    is_cancel_due: bool
    """Whether it gets `CancelledError` as soon as it resumes or waits."""
    cancel_message: Any

    def __hash__(self) -> int:
        # Sets of tasks are iterated in the order of hashes; it must be the same in a replay.
        return self.number

    def __eq__(self, other: object) -> bool:
        return self is other

    @abstractmethod
    def cancel_wait(self, error: CancelledError) -> None:
        """Abandon the steps that it waits for; it resumes with `error` once they have ended."""

    @property
    @abstractmethod
    def waits_for_steps(self) -> bool: ...

    @property
    @abstractmethod
    def line(self) -> str: ...

    @abstractmethod
    def done(self) -> bool: ...

    def cancel(self, msg: Any = None) -> bool:
        """Request cancellation, with asyncio's meaning: what it waits for is cancelled, and then it is."""
        if self.done():
            return False
        if is_scopes():
            self.machine.loop.scopes.due[self.number] = partial(self._cancel, msg)
            return True
        return self._cancel(msg)

    def _cancel(self, msg: Any) -> bool:
        self.cancels += 1
        if self.future is not None:
            if self.future.cancel(msg=msg):
                return True
        elif self.waits_for_steps:
            self.cancel_wait(cancelled_error(msg))
            return True
        self.is_cancel_due = True
        self.cancel_message = msg
        return True

    def cancelling(self) -> int:
        return self.cancels

    def uncancel(self) -> int:
        if self.cancels > 0:
            self.cancels -= 1
            if self.cancels == 0:
                self.is_cancel_due = False
        return self.cancels

    def interrupt(self, error: CancelledError) -> BaseException | None:
        """Cancel the future that it waits for. Returns what to throw when it resumes.

        If the future ends with an outcome all the same, that outcome counts (`resumption`).
        """
        self.cancels += 1
        if self.future is not None and not self.future.cancel(msg=str(error) or None):
            self.future = None
        return error

    def resumption(self, thrown: BaseException | None) -> BaseException | None:
        """What is thrown into the coroutine as it resumes after a future, or after a request to cancel it."""
        future, self.future = self.future, None
        if thrown is not None and future is not None and not _was_cancelled(future):
            thrown = None
        if self.is_cancel_due:
            self.is_cancel_due = False
            if not isinstance(thrown, CancelledError):
                thrown = cancelled_error(self.cancel_message)
        return thrown

    def cancelled(self) -> bool:
        return False

    def result(self) -> NoReturn:
        raise InvalidStateError("Result is not set.")

    def exception(self) -> NoReturn:
        raise InvalidStateError("Exception is not set.")

    def get_name(self) -> str:
        return self.name or f"Task-{self.number}"

    def set_name(self, value: object) -> None:
        self.name = str(value)

    def get_coro(self) -> Any:
        return self.coroutine

    def get_context(self) -> Context:
        return copy_context()

    def get_loop(self) -> AbstractEventLoop:
        loop: AbstractEventLoop = self.machine.loop
        return loop

    def get_stack(self, *, limit: int | None = None) -> list[Any]:  # noqa: ARG002 - as in asyncio
        frame = getattr(self.coroutine, "cr_frame", None)
        return [] if frame is None else [frame]

    def add_done_callback(self, *_: Any, **__: Any) -> NoReturn:
        raise ForeignAwait(
            f"workflow {self.machine.workflow.name!r} calls a thread, or something else that waits for the end of its "
            f"main coroutine ({self.line})",
            "do what needs a thread or an event loop in a @task",
        )

    def remove_done_callback(self, *_: Any) -> int:
        return 0

    # What libraries read of asyncio's own tasks.

    @property
    def _loop(self) -> AbstractEventLoop:
        return self.get_loop()

    @property
    def _fut_waiter(self) -> Any:
        return self.future

    @property
    def _must_cancel(self) -> bool:
        return self.is_cancel_due

    @_must_cancel.setter
    def _must_cancel(self, is_due: bool) -> None:
        self.is_cancel_due = is_due

    def __call__(self, _: "Future[Any]") -> None:
        """The callback of the future that it waits for. The loop makes the fiber ready without calling it."""
        self.machine.ready.append(self)


def cancelled_error(message: Any) -> CancelledError:
    return CancelledError() if message is None else CancelledError(message)


def _was_cancelled(future: Any) -> bool:
    if not future.done() or future.cancelled():
        return True
    return isinstance(future.exception(), CancelledError)
