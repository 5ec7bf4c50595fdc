"""Calls: units of work that the ledger records until they end."""

import asyncio
import logging
import signal
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from os import PathLike
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from perdure.core.errors import CallFailed, CallOver, InputError, OperationFailed, PerdureError
from perdure.core.operations.data import OperationFailedInfo
from perdure.core.operations.log import LogEvent
from perdure.core.operations.transitions import NewCall, ResourceChange
from perdure.operations.callbacks import CallCallback
from perdure.operations.processes import AttachedProcesses, Process
from perdure.operations.resources import require_resource

if TYPE_CHECKING:
    from perdure.operations.operation import Operation

_log = logging.getLogger("perdure.operations")

T = TypeVar("T")
T2 = TypeVar("T2")

CallWork = Callable[[], Awaitable[T]]
WorkWithCall = Callable[["SpawnedCall[T]"], Awaitable[T]]


class BaseCall(ABC, Generic[T]):
    """Shared by `Call` and `SpawnedCall`: resources, callbacks and clean-up."""

    def __init__(self, operation: "Operation", new: NewCall, callback: CallCallback[T]) -> None:
        self._operation = operation
        self._new = new
        self._callback = callback
        self._resources = new.resources
        self._is_cleaned_up = False

    @property
    def call_id(self) -> str:
        return self._new.call_id

    @property
    def description(self) -> str | None:
        return self._new.description

    async def add_resource(self, path: str | PathLike[str]) -> None:
        """Have a temporary file or directory removed when the call ends, successful or not."""
        await self._change_resources(ResourceChange(self.call_id, (require_resource(path),)))

    async def release_resource(self, path: str | PathLike[str]) -> None:
        """Keep the file or directory of an earlier `add_resource` when the call ends."""
        await self._change_resources(ResourceChange(self.call_id, (), (require_resource(path),)))

    async def _change_resources(self, resources: ResourceChange) -> None:
        await self._operation._keep_resources(resources)
        self._resources = resources.applied(self._resources)

    async def _clean_up(self) -> None:
        """Releases what a failed call holds: `on_cleanup`, then its temporary resources. Later calls do nothing."""
        if self._is_cleaned_up:
            return
        self._is_cleaned_up = True
        if self._callback.on_cleanup is not None:
            await self._operation._guarded("on_cleanup", self._callback.on_cleanup)
        try:
            await self._operation._remove(self._resources)
        except OperationFailed:
            # Only the first attempt asks the ledger: the failure is known now, and removal depends on its kind.
            await self._operation._remove(self._resources)
        except PerdureError as error:
            _log.warning(
                "temporary resources of call %s are not removed: %s (%s)",
                self.call_id,
                self._resources,
                error,
            )

    @abstractmethod
    async def _give_up(self) -> None:
        """Ends the call as failed because this participant leaves the operation."""

    async def _operation_failed(self, info: OperationFailedInfo) -> None:
        """Reacts to a failed operation: runs `on_operation_failed`, then cleans up."""
        callback = self._callback.on_operation_failed
        if callback is not None:
            await self._operation._guarded("on_operation_failed", lambda: callback(info))
        await self._clean_up()

    async def _run_on_completion(self, result: T) -> None:
        callback = self._callback.on_completion
        if callback is not None:
            await self._operation._guarded("on_completion", lambda: callback(result))

    async def _fallback(self) -> T | None:
        if self._callback.on_call_crashed is None:
            return None
        result = await self._operation._guarded("on_call_crashed", self._callback.on_call_crashed)
        return cast("T | None", result)


class Call(BaseCall[T]):
    """A call that the program ends itself. See `Operation.start_call` and `Operation.call`."""

    _is_open = True

    @property
    def is_open(self) -> bool:
        return self._is_open

    async def end(self, result: T | None = None) -> None:
        """End the call as successful. Raises `OperationFailed` if the operation has failed."""
        with self._closing():
            await self._operation._remove(self._resources)
            await self._operation._end(self, LogEvent.CALL_ENDED)
        await self._run_on_completion(cast("T", result))

    async def fail(self, error: BaseException) -> T | None:
        """End the call as failed; the operation continues. Returns the substitute result of `on_call_crashed`.

        If the operation has failed, its clean-up ends the call, and this method returns `None` without raising.
        """
        if self._operation.failure is not None:
            return None
        try:
            with self._closing():
                await self._clean_up()
                await self._operation._end(self, LogEvent.CALL_FAILED, repr(error))
        except OperationFailed:
            return None
        return await self._fallback()

    async def _operation_failed(self, info: OperationFailedInfo) -> None:
        self._is_open = False
        await super()._operation_failed(info)

    async def _give_up(self) -> None:
        await self.fail(_left_before_end(self.call_id))

    @contextmanager
    def _closing(self) -> Iterator[None]:
        """Prevents a concurrent second end of the call. If the commit to the ledger fails, the call is open again."""
        if self._operation.failure is not None:
            raise self._operation.failure
        if not self._is_open:
            raise CallOver(
                f"call {self.call_id!r} has already ended", "call end() or fail() once per call"
            )
        self._is_open = False
        try:
            yield
        except BaseException:
            self._is_open = self._operation.failure is None
            raise


class SpawnedCall(BaseCall[T]):
    """A call whose work runs in the background. `await` it for its result."""

    def __init__(self, operation: "Operation", new: NewCall, callback: CallCallback[T]) -> None:
        super().__init__(operation, new, callback)
        self._processes = AttachedProcesses()
        self._on_cancel: Callable[[], Awaitable[None] | None] | None = None
        self._is_cancelled = False
        self._is_stopping = False
        self._is_done = asyncio.Event()
        self._result: T | None = None
        self._error: BaseException | None = None
        self._task: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def is_completed(self) -> bool:
        """Whether the call has ended, successful or not."""
        return self._is_done.is_set()

    @property
    def is_success(self) -> bool:
        return self.is_completed and self._error is None

    @property
    def is_failed(self) -> bool:
        return self.is_completed and self._error is not None

    @property
    def is_cancelled(self) -> bool:
        """Whether `cancel` was called, or the operation stopped the call. The work may still return a result."""
        return self._is_cancelled

    @property
    def error(self) -> BaseException | None:
        """Why the call failed; `None` if it succeeded or is still running."""
        return self._error

    @property
    def result(self) -> T:
        """The result of a successful call. Raises `CallFailed` if it failed, `CallOver` if it is still running."""
        if self._error is not None:
            raise CallFailed(
                f"call {self.call_id!r} failed ({self._error!r})", "see the cause of this error"
            ) from self._error
        if not self.is_completed:
            raise CallOver(f"call {self.call_id!r} has no result yet", "await it first")
        return cast("T", self._result)

    async def wait(self) -> None:
        """Wait until the call has ended. Never raises the error of the call."""
        self._operation._require_process()
        await self._is_done.wait()

    def __await__(self) -> Generator[Any, None, T]:
        return self._outcome().__await__()

    async def _outcome(self) -> T:
        await self.wait()
        return self.result

    async def cancel(self) -> None:
        """Ask the work to stop: sets `is_cancelled` and runs the `on_cancel` callback. The work decides when to end."""
        self._operation._require_process()
        if self._is_cancelled or self.is_completed:
            return
        self._is_cancelled = True
        if self._on_cancel is not None:
            await self._operation._guarded("on_cancel", self._on_cancel)

    def on_cancel(self, callback: Callable[[], Awaitable[None] | None]) -> None:
        """Set the function that `cancel` calls."""
        self._on_cancel = callback

    def attach(self, process: Process) -> None:
        """Tie a process to the call: `kill` signals it, and a failing operation terminates it."""
        self._processes.add(process)

    def kill(self, number: int = signal.SIGTERM) -> bool:
        """Send a signal to the attached processes and their process groups. False if none is running."""
        if number not in signal.valid_signals():
            raise InputError(f"{number!r} is not a signal", "pass a member of signal.Signals")
        self._operation._require_process()
        return not self.is_completed and self._processes.send(number)

    def _start_background(self, work: Coroutine[Any, Any, T2]) -> "asyncio.Task[T2]":
        """Starts a task that may outlive the call's work, such as reading the output of its process."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _begin(self, work: WorkWithCall[T]) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(work))

    async def _run(self, work: WorkWithCall[T]) -> None:
        try:
            await self._operation._start(self._new)
            await self._succeed(await work(self))
        except asyncio.CancelledError as error:
            if self._is_stopping:
                self._settle(None, self._operation.failure or _left_before_end(self.call_id))
            else:
                await self._fail(error)
        except OperationFailed as failure:
            self._settle(None, failure)
        except Exception as error:
            await self._fail(error)

    async def _succeed(self, result: T) -> None:
        await self._operation._remove(self._resources)
        await self._operation._end(self, LogEvent.CALL_COMPLETED)
        self._settle(result, None)
        await self._run_on_completion(result)

    async def _fail(self, error: BaseException) -> None:
        await self._clean_up()
        fallback = await self._fallback()
        try:
            await self._operation._end(self, LogEvent.CALL_FAILED, repr(error))
        except OperationFailed as failure:
            self._settle(None, failure)
            return
        except PerdureError:
            # The ledger can't be written now. The next successful heartbeat removes the frame of the call.
            await self._operation._give_up(self)
        self._settle(fallback, error if fallback is None else None)
        if fallback is not None:
            await self._run_on_completion(fallback)

    def _settle(self, result: T | None, error: BaseException | None) -> None:
        if not self._is_done.is_set():
            self._result, self._error = result, error
            self._is_done.set()

    async def _operation_failed(self, info: OperationFailedInfo) -> None:
        await self._stop()
        await super()._operation_failed(info)

    async def _give_up(self) -> None:
        await self._stop()
        await self._clean_up()
        await self._operation._end(self, LogEvent.CALL_FAILED, str(_left_before_end(self.call_id)))

    async def _end_processes(self) -> None:
        await self._processes.end(self._operation._settings.kill_grace)

    async def _stop(self) -> None:
        self._is_cancelled = self._is_stopping = True
        await self._end_processes()
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


def _left_before_end(call_id: str) -> CallFailed:
    return CallFailed(
        f"call {call_id!r} was cancelled: its participant left the operation",
        "end calls before you leave the operation or dispose of the ledger",
    )
