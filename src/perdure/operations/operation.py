"""An operation as one of its participants sees it."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from os import PathLike
from typing import Any, TypeVar, overload

import msgspec

from perdure.core.errors import InputError, OperationFailed, ParticipantFenced, PerdureError
from perdure.core.operations.data import OperationFailedInfo, Participant
from perdure.core.operations.heartbeat import HeartbeatResult
from perdure.core.operations.log import LogEvent, LogLevel, event_line, message_line
from perdure.core.operations.names import new_call_id, require_words
from perdure.core.operations.transitions import NewCall, Resources
from perdure.operations.callbacks import CallCallback, OnFailed, settled
from perdure.operations.calls import Call, OpenCall, SpawnedCall, Work, WorkWithCall
from perdure.operations.clock import moment
from perdure.operations.home import Home
from perdure.operations.inputs import (
    require_callback,
    require_depth,
    require_flag,
    require_level,
    require_message,
    require_resources,
)
from perdure.operations.participation import Participation, Place
from perdure.operations.resources import remove, require_resource
from perdure.operations.workers import Deserialize, OnExit, file_result_worker, stdio_worker

T = TypeVar("T")

_log = logging.getLogger("perdure.operations")


class SyncResult(msgspec.Struct, frozen=True):
    """What became of calls that were awaited together. `unknown_calls` were under way when the operation failed."""

    successful_calls: list[SpawnedCall[Any]]
    failed_calls: list[SpawnedCall[Any]]
    unknown_calls: list[SpawnedCall[Any]]
    operation_failed: bool

    @property
    def all_succeeded(self) -> bool:
        return not self.operation_failed and not self.failed_calls and not self.unknown_calls

    @property
    def has_failed(self) -> bool:
        return self.operation_failed or bool(self.failed_calls)

    @property
    def all_resolved(self) -> bool:
        return not self.unknown_calls


class Operation:
    """Made by `Ledger.create_operation` and `Ledger.join_operation`."""

    def __init__(
        self, home: Home, place: Place, operation_id: str, me: Participant, *, is_initiator: bool
    ) -> None:
        self.operation_id = operation_id
        self.participant_id = me.participant_id
        self.participant_pid = me.pid
        self.is_initiator = is_initiator
        self.failure: OperationFailed | None = None
        self._me = me
        self._home = home
        self._clock = place.clock
        self._settings = place.settings
        self._loop = asyncio.get_running_loop()
        self._part = Participation(place, operation_id, me, self)
        self._open: dict[str, OpenCall[Any]] = {}
        self._calls = 0
        self._failed = asyncio.Event()
        self._cleaning: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Operation {self.operation_id} of {self._me}>"

    # Heartbeats

    def start_heartbeat(self) -> None:
        """Be heard of from now on, from the ledger's own thread. Done already, unless the settings say otherwise."""
        self._home.call(self._part.start_pulse)

    async def stop_heartbeat(self) -> None:
        """Be heard of no more: if calls are under way, the others will take this participant for dead."""
        await self._home.run(self._part.stop_pulse())

    async def heartbeat(self) -> HeartbeatResult:
        """One heartbeat now, and whatever duty follows from it; returns all that it found."""
        return await self._home.run(self._part.heartbeat())

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
        """Let the ledger know of a piece of work. `end` or `fail` it.

        If this process dies before, the operation fails; with `fail_on_crash=False` the call alone does. `resources`
        are temporary files and directories that go with the call.
        """
        told = require_callback(callback)
        new = self._new_call(description, fail_on_crash, resources)
        call: Call[Any] = Call(self, new, told)
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
        """`async with operation.call("zip") as call:` starts a call, and ends it, or fails it with what is raised."""
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
        work: Work[T] | None = None,
        *,
        work_with_call: WorkWithCall[T] | None = None,
        callback: CallCallback[T] | None = None,
        description: str | None = None,
        fail_on_crash: bool = True,
        resources: Sequence[str | PathLike[str]] = (),
    ) -> SpawnedCall[T]:
        """Run `work` in the background as a call; returns at once.

        `work_with_call` gets the call, to see whether it is cancelled and to attach processes.
        """
        chosen = _chosen(work, work_with_call)
        told = require_callback(callback)
        new = self._new_call(description, fail_on_crash, resources)
        call: SpawnedCall[T] = SpawnedCall(self, new._replace(is_spawned=True), told)
        self._open[call.call_id] = call
        call._begin(chosen)
        return call

    # Processes and requests as calls

    def exec_file_result_worker(
        self,
        command: Sequence[str],
        *,
        result_file_path: str | PathLike[str],
        deserializer: Deserialize[T],
        on_exit: OnExit | None = None,
        callback: CallCallback[T] | None = None,
        description: str | None = None,
        fail_on_crash: bool = True,
    ) -> SpawnedCall[T]:
        """Run a process that writes its result to a file; `deserializer` makes a value of the file's text."""
        return self.spawn_call(
            work_with_call=file_result_worker(command, result_file_path, deserializer, on_exit),
            callback=callback,
            description=description or _named(command),
            fail_on_crash=fail_on_crash,
        )

    def exec_stdio_worker(
        self,
        command: Sequence[str],
        *,
        deserializer: Deserialize[T],
        on_exit: OnExit | None = None,
        callback: CallCallback[T] | None = None,
        description: str | None = None,
        fail_on_crash: bool = True,
    ) -> SpawnedCall[T]:
        """Run a process that prints its result; `deserializer` makes a value of what it printed."""
        return self.spawn_call(
            work_with_call=stdio_worker(command, deserializer, on_exit),
            callback=callback,
            description=description or _named(command),
            fail_on_crash=fail_on_crash,
        )

    def exec_server_request(
        self,
        work: Work[T],
        *,
        callback: CallCallback[T] | None = None,
        description: str | None = None,
        fail_on_crash: bool = True,
    ) -> SpawnedCall[T]:
        """Run a request to a server as a call; `work` makes it, with whichever client you use."""
        return self.spawn_call(
            work,
            callback=callback,
            description=description or "server request",
            fail_on_crash=fail_on_crash,
        )

    # Waiting

    async def sync(
        self, calls: Sequence[SpawnedCall[Any]], *, on_operation_failed: OnFailed | None = None
    ) -> SyncResult:
        """Wait until all calls are over, or the operation has failed."""
        waiting = asyncio.gather(*(call.wait() for call in calls))
        await self._until(waiting)
        failure = self.failure
        unknown = [call for call in calls if not _is_known(call, failure)]
        if failure is not None:
            await self._tell(on_operation_failed, failure.info)
        return SyncResult(
            [call for call in calls if call not in unknown and call.is_success],
            [call for call in calls if call not in unknown and call.is_failed],
            unknown,
            failure is not None,
        )

    async def wait_for_completion(
        self,
        work: Callable[[], Awaitable[T]],
        *,
        on_operation_failed: OnFailed | None = None,
        on_error: Callable[[Exception], Awaitable[T]] | None = None,
    ) -> T:
        """The result of `work`, or `OperationFailed` if the operation fails first; the work is cancelled then.

        What the work raises goes to `on_error`, whose result takes the place of the work's.
        """
        task = asyncio.ensure_future(work())
        await self._until(task)
        error = None if task.cancelled() else task.exception()
        failure = error if isinstance(error, OperationFailed) else self.failure
        if failure is not None and (error is not None or task.cancelled()):
            await self._tell(on_operation_failed, failure.info)
            raise failure
        if isinstance(error, Exception) and on_error is not None:
            return await on_error(error)
        return task.result()

    async def _until(self, wanted: "asyncio.Future[Any]") -> None:
        """Wait for it or for the failure of the operation, and cancel it in the latter case."""
        failed = asyncio.ensure_future(self._failed.wait())
        try:
            await asyncio.wait({wanted, failed}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            rest = [one for one in (wanted, failed) if not one.done()]
            for one in rest:
                one.cancel()
            await asyncio.gather(*rest, return_exceptions=True)

    # The log

    async def log(self, message: str, level: LogLevel = LogLevel.INFO) -> None:
        """A line in the operation's log; of level `debug`, in the debug log only."""
        await self._log(message, require_level(level))

    async def log_message(self, depth: int, message: str) -> None:
        """A line that is set in by `depth`, to show which call belongs to which."""
        await self._log(message, LogLevel.INFO, require_depth(depth))

    async def _log(self, message: str, level: LogLevel, depth: int = 0) -> None:
        at = moment(self._clock).at
        line = message_line(at, self._me, require_message(message), level, depth)
        await self._home.run(self._part.log(line))

    # Temporary resources

    async def add_temp_resource(self, path: str | PathLike[str]) -> None:
        """Let a temporary file or directory go with the operation, however that ends."""
        await self._home.run(self._part.keep_resources(Resources(None, (require_resource(path),))))

    async def release_temp_resource(self, path: str | PathLike[str]) -> None:
        """Let it stay after all."""
        await self._home.run(
            self._part.keep_resources(Resources(None, (), (require_resource(path),)))
        )

    # The end

    async def complete(self) -> None:
        """The operation succeeded: no call may be under way. It moves to the backups. Only the initiator says so."""
        if not self.is_initiator:
            raise InputError(
                f"{self._me} did not create operation {self.operation_id!r}",
                "let its initiator complete it, or abort it",
            )
        await self._home.run(self._part.complete())

    async def abort(self, reason: str | None = None) -> None:
        """Let the operation fail: whoever takes part cleans up."""
        await self._home.run(self._part.abort(reason))

    # What the ledger tells

    def hear_of_failure(self, failure: OperationFailed) -> None:
        try:
            self._loop.call_soon_threadsafe(self._learn_of_failure, failure)
        except RuntimeError:
            # The program's loop is closed, and with it whoever would clean up.
            _log.warning("%r failed after its event loop was closed: %s", self, failure)

    def is_gone(self) -> bool:
        return self._loop.is_closed()

    def _learn_of_failure(self, failure: OperationFailed) -> None:
        if not self._failed.is_set():
            self.failure = failure
            self._failed.set()
            self._cleaning = self._loop.create_task(self._clean_up(failure.info))

    async def _clean_up(self, info: OperationFailedInfo) -> None:
        """Phase 2: everybody cleans up after itself."""
        calls, self._open = list(self._open.values()), {}
        await asyncio.gather(*(call._learn_of_failure(info) for call in calls))
        try:
            await self._home.run(self._part.cleaned_up())
        except PerdureError as error:
            _log.warning("%r has cleaned up, and can't say so: %s", self, error)

    async def _leave(self) -> None:
        """The ledger is disposed: end what is open, or clean it up."""
        calls = [] if self._failed.is_set() else list(self._open.values())
        for call in calls:
            try:
                await call._give_up()
            except PerdureError as error:
                _log.warning("%r could not end call %s: %s", self, call.call_id, error)
        # Heartbeats go on while this process cleans up, and the last one may bring news.
        await self._cleaned_up()
        await self.stop_heartbeat()
        await self._cleaned_up()
        await self._home.run(self._part.leave())

    async def _cleaned_up(self) -> None:
        if self._cleaning is not None:
            await self._cleaning

    # For calls

    def _new_call(
        self,
        description: str | None,
        fail_on_crash: bool,
        resources: Sequence[str | PathLike[str]],
    ) -> NewCall:
        if self.failure is not None:
            raise self.failure
        require_words("description", description)
        require_flag("fail_on_crash", fail_on_crash)
        paths = require_resources(resources)
        self._calls += 1
        call_id = new_call_id(self.participant_id, self._calls, self._clock.entropy(4))
        return NewCall(call_id, description, fail_on_crash, paths)

    async def _start(self, new: NewCall) -> None:
        try:
            await self._home.run(self._part.start_call(new))
        except BaseException as error:
            self._open.pop(new.call_id, None)
            if isinstance(error, asyncio.CancelledError):
                self._home.call(lambda: asyncio.ensure_future(self._part.give_up(new.call_id)))
            raise

    async def _end(self, call: OpenCall[Any], event: LogEvent, detail: str = "") -> None:
        level = LogLevel.WARNING if event is LogEvent.CALL_FAILED else LogLevel.INFO
        about = f"call={call.call_id}" + (f" error={detail}" if detail else "")
        line = event_line(moment(self._clock).at, event, self._me, about, level)
        await self._home.run(self._part.end_call(call.call_id, line))
        self._open.pop(call.call_id, None)

    async def _give_up(self, call: OpenCall[Any]) -> None:
        self._open.pop(call.call_id, None)
        await self._home.run(self._part.give_up(call.call_id))

    async def _keep_resources(self, resources: Resources) -> None:
        await self._home.run(self._part.keep_resources(resources))

    async def _remove(self, paths: Sequence[str]) -> None:
        """Remove a call's temporary resources, if they are its own.

        Those of a participant that was taken for dead others have removed, and may have made anew.
        """
        if not paths:
            return
        if self.failure is None:
            await self._home.run(self._part.hold())
        if not isinstance(self.failure, ParticipantFenced):
            await asyncio.to_thread(remove, list(paths))

    async def _guarded(self, name: str, callback: Callable[[], Any]) -> Any:
        """Call a function of the program's. What it raises is logged, and keeps nothing from going on."""
        try:
            return await settled(callback())
        except Exception as error:
            _log.exception("%s of %r raised", name, self)
            try:
                await self.log(f"{name} raised {error!r}", LogLevel.ERROR)
            except PerdureError:
                return None

    async def _tell(self, callback: OnFailed | None, info: OperationFailedInfo) -> None:
        if callback is not None:
            await self._guarded("on_operation_failed", lambda: callback(info))


def _chosen(work: Work[T] | None, work_with_call: WorkWithCall[T] | None) -> WorkWithCall[T]:
    if callable(work) and work_with_call is None:
        return lambda _: work()
    if callable(work_with_call) and work is None:
        return work_with_call
    raise InputError(
        "spawn_call needs one of work and work_with_call", "pass one async function, not both"
    )


def _named(command: Sequence[str]) -> str:
    return " ".join(command)[:200]


def _is_known(call: SpawnedCall[Any], failure: OperationFailed | None) -> bool:
    """Whether a call was over by itself, and not because the operation failed."""
    return call.is_completed and (failure is None or not isinstance(call.error, OperationFailed))
