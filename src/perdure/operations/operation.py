"""The API of an operation for one of its participants."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from os import PathLike
from typing import Any, Self, TypeVar, overload

from perdure.core.errors import (
    CallsOpen,
    InputError,
    OperationFailed,
    OperationOver,
    ParticipantFenced,
    PerdureError,
)
from perdure.core.operations.data import OperationFailedInfo, Participant
from perdure.core.operations.heartbeat import HeartbeatResult
from perdure.core.operations.log import LogEvent, LogLevel, event_line, message_line
from perdure.core.operations.names import new_call_id, require_words
from perdure.core.operations.transitions import NewCall, ResourceChange
from perdure.operations.callbacks import CallCallback, OnFailed, await_if_needed
from perdure.operations.calls import BaseCall, Call, CallWork, SpawnedCall, WorkWithCall
from perdure.operations.clock import read_clock
from perdure.operations.exec_calls import ExecCalls
from perdure.operations.inputs import (
    require_callback,
    require_depth,
    require_flag,
    require_level,
    require_message,
    require_resource_paths,
)
from perdure.operations.loop_thread import LoopThread
from perdure.operations.participation import LedgerContext, Participation
from perdure.operations.resources import remove, require_resource
from perdure.operations.sync_result import SyncResult

T = TypeVar("T")

_log = logging.getLogger("perdure.operations")


class Operation(ExecCalls):
    """One participant's handle on an operation. See `Ledger.create_operation` and `Ledger.join_operation`.

    `async with` leaves the operation at the end of the block; pending calls then fail.
    """

    def __init__(
        self,
        thread: LoopThread,
        context: LedgerContext,
        operation_id: str,
        me: Participant,
        *,
        is_initiator: bool,
        on_over: Callable[["Operation"], None],
    ) -> None:
        self.operation_id = operation_id
        self.participant_id = me.participant_id
        self.participant_pid = me.pid
        self.is_initiator = is_initiator
        self.failure: OperationFailed | None = None
        self._me = me
        self._thread = thread
        self._clock = context.clock
        self._settings = context.settings
        self._loop = asyncio.get_running_loop()
        self._part = Participation(context, operation_id, me, self)
        self._open: dict[str, BaseCall[Any]] = {}
        self._calls = 0
        self._failed = asyncio.Event()
        self._cleaning: asyncio.Task[None] | None = None
        self._on_over = on_over
        self._has_left = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.leave(cancel_pending_calls=True)

    def __repr__(self) -> str:
        return f"<Operation {self.operation_id} of {self._me}>"

    # Heartbeats

    def start_heartbeat(self) -> None:
        """Send heartbeats from the ledger's thread. Automatic unless `LedgerSettings.auto_heartbeat` is False."""
        self._thread.call(self._part.start_heartbeats)

    async def stop_heartbeat(self) -> None:
        """Stop heartbeats. If calls are running, the other participants will consider this one dead."""
        await self._thread.run(self._part.stop_heartbeats())

    async def heartbeat(self) -> HeartbeatResult:
        """Send one heartbeat now and do the clean-up duty that follows from it; returns what it observed."""
        self._require_taking_part()
        result = await self._thread.run(self._part.heartbeat())
        self._forget_if_over()
        return result

    # Calls

    @overload
    async def start_call(
        self,
        *,
        callback: None = None,
        description: str | None = None,
        fail_on_crash: bool = True,
        resources: Sequence[str | PathLike[str]] = (),
    ) -> Call[Any]: ...

    @overload
    async def start_call(
        self,
        *,
        callback: CallCallback[T],
        description: str | None = None,
        fail_on_crash: bool = True,
        resources: Sequence[str | PathLike[str]] = (),
    ) -> Call[T]: ...

    async def start_call(
        self,
        *,
        callback: CallCallback[Any] | None = None,
        description: str | None = None,
        fail_on_crash: bool = True,
        resources: Sequence[str | PathLike[str]] = (),
    ) -> Call[Any]:
        """Record a unit of work in the ledger. Finish it with `Call.end` or `Call.fail`.

        If this process dies before that, the operation fails; with `fail_on_crash=False` only the call fails.
        `resources` are temporary files and directories, removed when the call ends.
        """
        callbacks = require_callback(callback)
        new = self._new_call(description, fail_on_crash, resources)
        call: Call[Any] = Call(self, new, callbacks)
        self._open[call.call_id] = call
        await self._start(new)
        return call

    @asynccontextmanager
    async def call(
        self,
        description: str | None = None,
        *,
        callback: CallCallback[Any] | None = None,
        fail_on_crash: bool = True,
        resources: Sequence[str | PathLike[str]] = (),
    ) -> AsyncIterator[Call[Any]]:
        """Start a call for an `async with` block; ends it with the block, or fails it with the block's exception."""
        call: Call[Any] = await self.start_call(
            callback=require_callback(callback),
            description=description,
            fail_on_crash=fail_on_crash,
            resources=resources,
        )
        try:
            yield call
        except BaseException as error:
            if call.is_open:
                await call.fail(error)
            raise
        if call.is_open:
            await call.end()

    def spawn_call(
        self,
        work: CallWork[T] | None = None,
        *,
        work_with_call: WorkWithCall[T] | None = None,
        callback: CallCallback[T] | None = None,
        description: str | None = None,
        fail_on_crash: bool = True,
        resources: Sequence[str | PathLike[str]] = (),
    ) -> SpawnedCall[T]:
        """Run `work` in the background as a call; returns at once.

        `work_with_call` receives the call, to check `is_cancelled` and to attach processes.
        """
        chosen = _chosen(work, work_with_call)
        callbacks = require_callback(callback)
        new = self._new_call(description, fail_on_crash, resources)
        call: SpawnedCall[T] = SpawnedCall(self, new._replace(is_spawned=True), callbacks)
        self._open[call.call_id] = call
        call._begin(chosen)
        return call

    @property
    def pending_calls(self) -> list[Call[Any]]:
        """Calls of `start_call` and `call` that this participant has not ended, oldest first."""
        return [call for call in self._open.values() if isinstance(call, Call)]

    @property
    def pending_spawned_calls(self) -> list[SpawnedCall[Any]]:
        """Calls of `spawn_call` and the exec helpers that are still running, oldest first."""
        return [call for call in self._open.values() if isinstance(call, SpawnedCall)]

    @property
    def has_pending_calls(self) -> bool:
        return bool(self._open)

    # Waiting

    async def sync(
        self,
        calls: Sequence[SpawnedCall[Any]],
        *,
        on_operation_failed: OnFailed | None = None,
        on_completion: Callable[[], Awaitable[None] | None] | None = None,
    ) -> SyncResult:
        """Wait until all calls have ended or the operation has failed.

        Runs `on_completion` if all calls ended, successful or not, and `on_operation_failed(info)` if the operation
        failed first.
        """
        self._require_process()
        waiting = asyncio.gather(*(call.wait() for call in calls))
        await self._until(waiting)
        failure = self.failure
        if failure is not None:
            await self._run_on_failed(on_operation_failed, failure.info)
        elif on_completion is not None:
            await self._guarded("on_completion", on_completion)
        return SyncResult.of(calls, failure)

    async def wait_for_completion(
        self,
        work: Callable[[], Awaitable[T]],
        *,
        on_operation_failed: OnFailed | None = None,
        on_error: Callable[[Exception], Awaitable[T]] | None = None,
    ) -> T:
        """Run `work` and return its result. If the operation fails first, cancel it and raise `OperationFailed`.

        If `work` raises, `on_error(exception)` returns the result instead.
        """
        self._require_process()
        task = asyncio.ensure_future(work())
        await self._until(task)
        error = None if task.cancelled() else task.exception()
        failure = error if isinstance(error, OperationFailed) else self.failure
        if failure is not None and (error is not None or task.cancelled()):
            await self._run_on_failed(on_operation_failed, failure.info)
            raise failure
        if isinstance(error, Exception) and on_error is not None:
            return await on_error(error)
        return task.result()

    async def _until(self, wanted: "asyncio.Future[Any]") -> None:
        """Waits for `wanted` or the failure of the operation; in the latter case cancels `wanted`."""
        failed = asyncio.ensure_future(self._failed.wait())
        try:
            await asyncio.wait({wanted, failed}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            pending = [future for future in (wanted, failed) if not future.done()]
            for future in pending:
                future.cancel()
            await asyncio.gather(*pending, return_exceptions=True)

    # The log

    async def log(self, message: str, level: LogLevel = LogLevel.INFO) -> None:
        """Write a line to the operation's log; with level `debug` only to the debug log."""
        await self._log(message, require_level(level))

    async def log_message(self, depth: int, message: str) -> None:
        """Write a log line indented by `depth`, to show nested calls."""
        await self._log(message, LogLevel.INFO, require_depth(depth))

    async def _log(self, message: str, level: LogLevel, depth: int = 0) -> None:
        at = read_clock(self._clock).at
        line = message_line(at, self._me, require_message(message), level, depth)
        await self._thread.run(self._part.log(line))

    # Temporary resources

    async def add_temp_resource(self, path: str | PathLike[str]) -> None:
        """Have a temporary file or directory removed when the operation ends, successful or not."""
        await self._thread.run(
            self._part.keep_resources(ResourceChange(None, (require_resource(path),)))
        )

    async def release_temp_resource(self, path: str | PathLike[str]) -> None:
        """Keep the file or directory of an earlier `add_temp_resource` when the operation ends."""
        await self._thread.run(
            self._part.keep_resources(ResourceChange(None, (), (require_resource(path),)))
        )

    # The end

    async def complete(self) -> None:
        """End the operation as successful and move it to the backups. Initiator only; no call may be open."""
        if not self.is_initiator:
            raise InputError(
                f"{self._me} did not create operation {self.operation_id!r}",
                "call complete() in its initiator, or abort it",
            )
        self._require_taking_part()
        await self._thread.run(self._part.complete())
        self._forget_if_over()

    async def leave(self, *, cancel_pending_calls: bool = False, abort: bool = True) -> None:
        """Stop taking part: heartbeats end, and the operation continues without this participant.

        Raises `CallsOpen` while calls are pending; `cancel_pending_calls` fails them first. If the initiator leaves an
        operation that it has not completed, the operation fails; with `abort=False` it continues, and a process that
        joins under the initiator's participant id can complete it. Leaving twice, or after the end, changes nothing.
        """
        require_flag("cancel_pending_calls", cancel_pending_calls)
        require_flag("abort", abort)
        self._require_process()
        if self._has_left:
            return
        if self._open and not cancel_pending_calls and self.failure is None:
            raise CallsOpen(
                f"{self!r} has open calls: {', '.join(self._open)}",
                "end them, or leave with cancel_pending_calls=True",
            )
        await self._leave(abort=abort)

    async def abort(self, reason: str | None = None) -> None:
        """Make the operation fail; its participants clean up."""
        await self._thread.run(self._part.abort(reason))

    # Called from the ledger's thread

    def on_failure(self, failure: OperationFailed) -> None:
        try:
            self._loop.call_soon_threadsafe(self._begin_clean_up, failure)
        except RuntimeError:
            # The program's event loop is closed, so its calls can't clean up.
            _log.warning("%r failed after its event loop was closed: %s", self, failure)

    def is_closed(self) -> bool:
        return self._loop.is_closed()

    def _begin_clean_up(self, failure: OperationFailed) -> None:
        if not self._failed.is_set():
            self.failure = failure
            self._failed.set()
            self._cleaning = self._loop.create_task(self._clean_up(failure.info))

    async def _clean_up(self, info: OperationFailedInfo) -> None:
        """Phase 2 of a failure: each participant cleans up its own calls."""
        calls, self._open = list(self._open.values()), {}
        await asyncio.gather(*(call._operation_failed(info) for call in calls))
        try:
            await self._thread.run(self._part.cleaned_up())
        except PerdureError as error:
            _log.warning("%r has cleaned up, but could not record it: %s", self, error)

    async def _leave(self, *, abort: bool = True) -> None:
        """Fails open calls, or finishes their clean-up, and leaves."""
        if self._has_left:
            return
        self._has_left = True
        calls = [] if self._failed.is_set() else list(self._open.values())
        for call in calls:
            try:
                await call._give_up()
            except PerdureError as error:
                _log.warning("%r could not end call %s: %s", self, call.call_id, error)
        # Heartbeats continue during the clean-up, and the last one may report a failure: hence the second wait.
        await self._wait_cleaned_up()
        await self.stop_heartbeat()
        await self._wait_cleaned_up()
        aborts = abort and self.is_initiator and self.failure is None
        await self._thread.run(self._part.leave(aborts=aborts))
        self._on_over(self)

    def on_end(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._forget_if_over)
        except RuntimeError:
            _log.debug("%r ended after its event loop was closed", self)

    def _forget_if_over(self) -> None:
        """Removes the operation from its ledger once no duty is left for this participant."""
        if not self._part.is_done:
            return
        if self._cleaning is None or self._cleaning.done():
            self._on_over(self)
        else:
            self._cleaning.add_done_callback(lambda _: self._on_over(self))

    async def _wait_cleaned_up(self) -> None:
        if self._cleaning is not None:
            await self._cleaning

    # For calls

    def _require_process(self) -> None:
        """Raises in a forked child, which has none of the parent's threads and tasks."""
        self._thread.process.require()

    def _require_taking_part(self) -> None:
        self._thread.require_open()
        if self._has_left and self.failure is None:
            raise OperationOver(
                f"{self._me} has left operation {self.operation_id!r}",
                "join the operation again with Ledger.join_operation",
            )

    def _new_call(
        self,
        description: str | None,
        fail_on_crash: bool,
        resources: Sequence[str | PathLike[str]],
    ) -> NewCall:
        self._require_taking_part()
        if self.failure is not None:
            raise self.failure
        require_words("description", description)
        require_flag("fail_on_crash", fail_on_crash)
        paths = require_resource_paths(resources)
        self._calls += 1
        call_id = new_call_id(self.participant_id, self._calls, self._clock.entropy(4))
        return NewCall(call_id, description, fail_on_crash, paths)

    async def _start(self, new: NewCall) -> None:
        try:
            await self._thread.run(self._part.start_call(new))
        except BaseException as error:
            self._open.pop(new.call_id, None)
            if isinstance(error, asyncio.CancelledError):
                self._thread.call(
                    lambda: asyncio.ensure_future(self._part.forget_call(new.call_id))
                )
            raise

    async def _end(self, call: BaseCall[Any], event: LogEvent, detail: str = "") -> None:
        level = LogLevel.WARNING if event is LogEvent.CALL_FAILED else LogLevel.INFO
        about = f"call={call.call_id}" + (f" error={detail}" if detail else "")
        line = event_line(read_clock(self._clock).at, event, self._me, about, level)
        await self._thread.run(self._part.end_call(call.call_id, line))
        self._open.pop(call.call_id, None)

    async def _give_up(self, call: BaseCall[Any]) -> None:
        self._open.pop(call.call_id, None)
        await self._thread.run(self._part.forget_call(call.call_id))

    async def _keep_resources(self, resources: ResourceChange) -> None:
        await self._thread.run(self._part.keep_resources(resources))

    async def _remove(self, paths: Sequence[str]) -> None:
        """Removes a call's temporary resources, unless this participant is fenced.

        The others have already removed the resources of a fenced participant, and may have created them again.
        """
        if not paths:
            return
        if self.failure is None:
            await self._thread.run(self._part.confirm_ownership())
        if not isinstance(self.failure, ParticipantFenced):
            await asyncio.to_thread(remove, list(paths))

    async def _guarded(self, name: str, callback: Callable[[], Any]) -> Any:
        """Runs a callback of the program. Logs its exception and continues."""
        try:
            return await await_if_needed(callback())
        except Exception as error:
            _log.exception("%s callback of %r raised an exception", name, self)
            try:
                await self.log(f"{name} raised {error!r}", LogLevel.ERROR)
            except PerdureError:
                return None

    async def _run_on_failed(self, callback: OnFailed | None, info: OperationFailedInfo) -> None:
        if callback is not None:
            await self._guarded("on_operation_failed", lambda: callback(info))


def _chosen(work: CallWork[T] | None, work_with_call: WorkWithCall[T] | None) -> WorkWithCall[T]:
    if callable(work) and work_with_call is None:
        return lambda _: work()
    if callable(work_with_call) and work is None:
        return work_with_call
    raise InputError(
        "spawn_call needs either work or work_with_call", "pass one async function, not both"
    )
