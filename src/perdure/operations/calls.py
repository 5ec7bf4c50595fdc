"""Calls: units of work that the ledger knows of while they are under way."""

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
from perdure.core.operations.transitions import NewCall, Resources
from perdure.operations.callbacks import CallCallback
from perdure.operations.processes import Attached, Process
from perdure.operations.resources import require_resource

if TYPE_CHECKING:
    from perdure.operations.operation import Operation

_log = logging.getLogger("perdure.operations")

T = TypeVar("T")
T2 = TypeVar("T2")

Work = Callable[[], Awaitable[T]]
WorkWithCall = Callable[["SpawnedCall[T]"], Awaitable[T]]


class OpenCall(ABC, Generic[T]):
    """What calls of both kinds have in common."""

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
        """Let a temporary file or directory go with the call, however that ends."""
        await self._keep(Resources(self.call_id, (require_resource(path),)))

    async def release_resource(self, path: str | PathLike[str]) -> None:
        """Let it stay after all."""
        await self._keep(Resources(self.call_id, (), (require_resource(path),)))

    async def _keep(self, resources: Resources) -> None:
        await self._operation._keep_resources(resources)
        self._resources = resources.applied(self._resources)

    async def _clean_up(self) -> None:
        """The call is given up: release what it holds, once."""
        if self._is_cleaned_up:
            return
        self._is_cleaned_up = True
        if self._callback.on_cleanup is not None:
            await self._operation._guarded("on_cleanup", self._callback.on_cleanup)
        try:
            await self._operation._remove(self._resources)
        except OperationFailed:
            # Known by now, so that this asks nobody again.
            await self._operation._remove(self._resources)
        except PerdureError as error:
            _log.warning("call %s leaves %s (%s)", self.call_id, self._resources, error)

    @abstractmethod
    async def _give_up(self) -> None:
        """The program leaves: the call ends as failed."""

    async def _learn_of_failure(self, info: OperationFailedInfo) -> None:
        """The operation failed: stop, tell, and release what the call holds."""
        told = self._callback.on_operation_failed
        if told is not None:
            await self._operation._guarded("on_operation_failed", lambda: told(info))
        await self._clean_up()

    async def _tell_completion(self, result: T) -> None:
        told = self._callback.on_completion
        if told is not None:
            await self._operation._guarded("on_completion", lambda: told(result))

    async def _fallback(self) -> T | None:
        if self._callback.on_call_crashed is None:
            return None
        found = await self._operation._guarded("on_call_crashed", self._callback.on_call_crashed)
        return cast("T | None", found)


class Call(OpenCall[T]):
    """A call that its program ends: made by `Operation.start_call` or `async with operation.call(...)`."""

    _is_open = True

    @property
    def is_open(self) -> bool:
        return self._is_open

    async def end(self, result: T | None = None) -> None:
        """The call succeeded. Raises `OperationFailed` if the operation did not last as long."""
        with self._closing():
            await self._operation._remove(self._resources)
            await self._operation._end(self, LogEvent.CALL_ENDED)
        await self._tell_completion(cast("T", result))

    async def fail(self, error: BaseException) -> T | None:
        """The call failed; the operation goes on. Returns what `on_call_crashed` gives in its place.

        If the operation has failed by now, its clean-up sees to the call, and nothing is raised here.
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

    async def _learn_of_failure(self, info: OperationFailedInfo) -> None:
        self._is_open = False
        await super()._learn_of_failure(info)

    async def _give_up(self) -> None:
        await self.fail(_given_up(self.call_id))

    @contextmanager
    def _closing(self) -> Iterator[None]:
        """Nobody else ends the call meanwhile. It stays open if the ledger could not be told."""
        if self._operation.failure is not None:
            raise self._operation.failure
        if not self._is_open:
            raise CallOver(f"call {self.call_id!r} is over", "end or fail a call once")
        self._is_open = False
        try:
            yield
        except BaseException:
            self._is_open = self._operation.failure is None
            raise


class SpawnedCall(OpenCall[T]):
    """A call that runs in the background. `await` it for its result."""

    def __init__(self, operation: "Operation", new: NewCall, callback: CallCallback[T]) -> None:
        super().__init__(operation, new, callback)
        self._processes = Attached()
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
        """Whether it is over, one way or the other."""
        return self._is_done.is_set()

    @property
    def is_success(self) -> bool:
        return self.is_completed and self._error is None

    @property
    def is_failed(self) -> bool:
        return self.is_completed and self._error is not None

    @property
    def is_cancelled(self) -> bool:
        """Whether somebody asked it to end. It may succeed all the same, with what it has."""
        return self._is_cancelled

    @property
    def error(self) -> BaseException | None:
        """What its work raised; `None` if nothing, or not yet."""
        return self._error

    @property
    def result(self) -> T:
        """The result of a call that has succeeded."""
        if self._error is not None:
            raise CallFailed(
                f"call {self.call_id!r} failed ({self._error!r})", "see the cause of this error"
            ) from self._error
        if not self.is_completed:
            raise CallOver(f"call {self.call_id!r} has no result yet", "await it first")
        return cast("T", self._result)

    async def wait(self) -> None:
        """Wait until it is over, and raise nothing whatever became of it."""
        await self._is_done.wait()

    def __await__(self) -> Generator[Any, None, T]:
        return self._outcome().__await__()

    async def _outcome(self) -> T:
        await self.wait()
        return self.result

    async def cancel(self) -> None:
        """Ask it to end: sets `is_cancelled`, and calls what `on_cancel` was given. The work decides."""
        if self._is_cancelled or self.is_completed:
            return
        self._is_cancelled = True
        if self._on_cancel is not None:
            await self._operation._guarded("on_cancel", self._on_cancel)

    def on_cancel(self, callback: Callable[[], Awaitable[None] | None]) -> None:
        """Call this when somebody cancels."""
        self._on_cancel = callback

    def attach(self, process: Process) -> None:
        """The process works for this call: `kill` signals it, and it ends with the operation if that fails."""
        self._processes.add(process)

    def kill(self, number: int = signal.SIGTERM) -> bool:
        """Signal the processes of the call, with all that they have started. False if there is none."""
        if number not in signal.valid_signals():
            raise InputError(f"{number!r} is not a signal", "pass one of the module signal")
        return not self.is_completed and self._processes.send(number)

    def _beside(self, work: Coroutine[Any, Any, T2]) -> "asyncio.Task[T2]":
        """Run something for the call's work that may outlast it."""
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
                self._settle(None, self._operation.failure or _given_up(self.call_id))
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
        await self._tell_completion(result)

    async def _fail(self, error: BaseException) -> None:
        await self._clean_up()
        fallback = await self._fallback()
        try:
            await self._operation._end(self, LogEvent.CALL_FAILED, repr(error))
        except OperationFailed as failure:
            self._settle(None, failure)
            return
        except PerdureError:
            # The ledger can't be written. The next heartbeat that can removes the call.
            await self._operation._give_up(self)
        self._settle(fallback, error if fallback is None else None)
        if fallback is not None:
            await self._tell_completion(fallback)

    def _settle(self, result: T | None, error: BaseException | None) -> None:
        if not self._is_done.is_set():
            self._result, self._error = result, error
            self._is_done.set()

    async def _learn_of_failure(self, info: OperationFailedInfo) -> None:
        await self._stop()
        await super()._learn_of_failure(info)

    async def _give_up(self) -> None:
        await self._stop()
        await self._clean_up()
        await self._operation._end(self, LogEvent.CALL_FAILED, str(_given_up(self.call_id)))

    async def _stop(self) -> None:
        self._is_cancelled = self._is_stopping = True
        await self._processes.end(self._operation._settings.kill_grace)
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


def _given_up(call_id: str) -> CallFailed:
    return CallFailed(f"call {call_id!r} was given up", "its ledger was disposed while it ran")
