"""The entry point: creates, joins, lists, aborts and recovers operations."""

import asyncio
import logging
import os
from os import PathLike
from typing import Final

from perdure.core.errors import (
    CorruptOperation,
    InputError,
    InvalidId,
    StoreClosed,
    UnknownOperation,
)
from perdure.core.operations import transitions
from perdure.core.operations.data import LedgerData, OperationState, Participant
from perdure.core.operations.names import (
    new_operation_id,
    require_operation_id,
    require_participant_id,
    require_words,
)
from perdure.core.operations.timing import LedgerSettings
from perdure.operations.backend import Backend
from perdure.operations.clock import LedgerClock, SystemClock, read_clock
from perdure.operations.file_backend import FileBackend
from perdure.operations.inputs import (
    require_directory,
    require_pid,
    require_settings,
    require_url,
)
from perdure.operations.loop_thread import LoopThread
from perdure.operations.operation import Operation
from perdure.operations.participation import LedgerContext, NullListener, Participation
from perdure.operations.store_backend import StoreBackend

_log = logging.getLogger("perdure.operations")

DEFAULT_PARTICIPANT_ID: Final = "perdure"
"""Logged as the actor of `abort_operation` and `recover_operation` if the ledger has no participant id."""


class Ledger:
    """Operations in the files of a directory, or in a store's database.

    `participant_id` names this process in operations that it creates or joins; both methods can override it. The
    backups keep the newest `max_backups` ended operations. Call `dispose` before the process ends, or use
    `async with`.
    """

    def __init__(
        self,
        base_path: str | PathLike[str] | None = None,
        *,
        store: str | None = None,
        participant_id: str | None = None,
        participant_pid: int | None = None,
        max_backups: int = 20,
        settings: LedgerSettings | None = None,
        clock: LedgerClock | None = None,
    ) -> None:
        if (base_path is None) == (store is None):
            raise InputError(
                "a ledger needs either a directory or a store", "pass base_path or store, not both"
            )
        if type(max_backups) is not int or max_backups < 0:
            raise InputError(f"max_backups is {max_backups!r}", "pass a whole number, 0 or more")
        if participant_id is not None:
            require_participant_id(participant_id)
        settings = LedgerSettings() if settings is None else require_settings(settings)
        self._participant_id = participant_id
        self._pid = None if participant_pid is None else require_pid(participant_pid)
        backend = _backend(base_path, store, settings)
        self._context = LedgerContext(backend, settings, clock or SystemClock(), max_backups)
        self._thread: LoopThread | None = None
        self._is_disposed = False
        self._open_lock = asyncio.Lock()
        self._operations: set[Operation] = set()
        """Operations that this process takes part in, until they end or it leaves."""

    async def __aenter__(self) -> "Ledger":
        await self._open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.dispose()

    async def create_operation(
        self, *, participant_id: str | None = None, description: str | None = None
    ) -> Operation:
        """Create an operation, with this process as its initiator."""
        require_words("description", description)
        thread = await self._open()
        me = self._participant(participant_id)
        clock = self._context.clock
        while True:
            operation_id = new_operation_id(me.participant_id, clock.now_ms(), clock.entropy(4))
            change = transitions.create(operation_id, me, description, read_clock(clock).at)
            if await thread.run(self._context.backend.create(change)):
                return self._add_operation(thread, operation_id, me, is_initiator=True)

    async def join_operation(
        self, operation_id: str, *, participant_id: str | None = None
    ) -> Operation:
        """Take part in an existing operation; under the initiator's participant id, as its initiator."""
        thread = await self._open()
        me = self._participant(participant_id)
        data = await self.read_operation(operation_id)
        part = Participation(self._context, operation_id, me, NullListener())
        await thread.run(part.join())
        is_initiator = data.initiator_id == me.participant_id
        return self._add_operation(thread, operation_id, me, is_initiator=is_initiator)

    async def dispose(self) -> None:
        """Leave all operations and close the ledger.

        Open calls fail. If this process coordinates a clean-up, it finishes it, or hands it over to a participant that
        has not cleaned up yet. An error in one operation does not prevent leaving the others; the first error is
        raised at the end. In a forked child this does nothing: the parent still takes part.
        """
        thread, self._thread = self._thread, None
        self._is_disposed = True
        if thread is None or not thread.process.is_here:
            return
        operations, self._operations = self._operations, set()
        try:
            left = await asyncio.gather(
                *(operation._leave() for operation in operations), return_exceptions=True
            )
        finally:
            await thread.run(self._context.backend.close())
            await thread.close()
        errors = [error for error in left if error is not None]
        for error in errors[1:]:
            _log.warning("could not leave another operation: %s", error)
        if errors:
            raise errors[0]

    # Reading and ending operations without taking part

    async def operation_ids(self, *, backups: bool = False) -> list[str]:
        """Ids of the current operations, or of those in the backups; oldest first."""
        thread = await self._open()
        return await thread.run(self._context.backend.operation_ids(backups=backups))

    async def operations(self, *, backups: bool = False) -> list[LedgerData]:
        """The current operations, or those in the backups; oldest first.

        Skips unreadable operations with a warning. `operation_ids` includes them, and `read_operation` raises the
        error.
        """
        thread = await self._open()
        backend = self._context.backend
        found = []
        for operation_id in await self.operation_ids(backups=backups):
            load = backend.load_backup if backups else backend.load
            try:
                data = await thread.run(load(operation_id))
            except (CorruptOperation, InvalidId) as error:
                _log.warning("skipping unreadable operation %s: %s", operation_id, error)
                continue
            if data is not None:
                found.append(data)
        return found

    async def read_operation(self, operation_id: str) -> LedgerData:
        """The ledger of an operation, current or in the backups."""
        thread = await self._open()
        require_operation_id(operation_id)
        backend = self._context.backend
        # This order finds an operation that moves to the backups in between; it never moves back.
        for load in (backend.load, backend.load_backup):
            data = await thread.run(load(operation_id))
            if data is not None:
                return data
        raise UnknownOperation(
            f"there is no operation {operation_id!r} in {backend.name}",
            "list operations with Ledger.operation_ids(); the backups keep only the newest max_backups",
        )

    async def read_log(self, operation_id: str, *, debug: bool = False) -> list[str]:
        """The lines of an operation's log or debug log."""
        await self.read_operation(operation_id)
        thread = await self._open()
        return await thread.run(self._context.backend.read_log(operation_id, debug=debug))

    async def abort_operation(self, operation_id: str, reason: str | None = None) -> None:
        """Make an operation fail; its participants clean up. If all of them are gone, use `recover_operation`."""
        await self.read_operation(operation_id)
        thread = await self._open()
        part = self._outside_participation(operation_id)
        await thread.run(part.abort(reason))

    async def recover_operation(self, operation_id: str) -> LedgerData:
        """End an operation whose participants may all be gone.

        Watches heartbeats long enough to detect dead participants, cleans up after a crash, and moves the ended
        operation to the backups. Aborts an operation that has no calls and receives no heartbeats. Returns the ledger
        afterwards: still running if its participants are alive.
        """
        data = await self.read_operation(operation_id)
        thread = await self._open()
        part = self._outside_participation(operation_id)
        settings, clock = self._context.settings, self._context.clock
        timeout_ms = settings.staleness_ms + round(2 * settings.heartbeat_longest * 1000)
        if await self._is_abandoned(data, timeout_ms):
            await thread.run(part.abort("it has no live participants"))
        began_ms = clock.monotonic_ms()
        while (await thread.run(part.heartbeat())).ledger_exists:
            data = await self.read_operation(operation_id)
            is_running = data.operation_state is OperationState.RUNNING and not data.aborted
            if is_running and clock.monotonic_ms() - began_ms > timeout_ms:
                return data
            await asyncio.sleep(settings.heartbeat_shortest / 4)
        return await self.read_operation(operation_id)

    async def _is_abandoned(self, data: LedgerData, timeout_ms: int) -> bool:
        """Whether the operation has no calls, whose frames would show a crash, and receives no heartbeats."""
        clock = self._context.clock
        first, began_ms = data, clock.monotonic_ms()
        while data == first and not (data.stack or data.aborted or data.is_over):
            if clock.monotonic_ms() - began_ms > timeout_ms:
                return True
            await asyncio.sleep(self._context.settings.heartbeat_shortest / 4)
            data = await self.read_operation(data.operation_id)
        return False

    async def _open(self) -> LoopThread:
        if self._is_disposed:
            raise StoreClosed("the ledger is disposed", "create another Ledger")
        if self._thread is not None:
            self._thread.process.require()
            return self._thread
        async with self._open_lock:
            if self._thread is None:
                name = self._context.backend.name
                thread = LoopThread(f"perdure-ledger {name}", f"a ledger on {name}")
                try:
                    await thread.run(self._context.backend.open())
                except BaseException:
                    await thread.close()
                    raise
                self._thread = thread
            return self._thread

    def _add_operation(
        self, thread: LoopThread, operation_id: str, me: Participant, *, is_initiator: bool
    ) -> Operation:
        operation = Operation(
            thread,
            self._context,
            operation_id,
            me,
            is_initiator=is_initiator,
            on_over=self._operations.discard,
        )
        self._operations.add(operation)
        if self._context.settings.auto_heartbeat:
            operation.start_heartbeat()
        return operation

    def _participant(self, participant_id: str | None) -> Participant:
        chosen = self._participant_id if participant_id is None else participant_id
        if chosen is None:
            raise InputError(
                "there is no participant id",
                "pass participant_id to this method, or to Ledger for all operations",
            )
        session = self._context.clock.entropy(4).hex()
        pid = os.getpid() if self._pid is None else self._pid
        return Participant(require_participant_id(chosen), pid, session)

    def _outside_participation(self, operation_id: str) -> Participation:
        me = self._participant(self._participant_id or DEFAULT_PARTICIPANT_ID)
        return Participation(self._context, operation_id, me, NullListener())


def _backend(
    base_path: str | PathLike[str] | None, store: str | None, settings: LedgerSettings
) -> Backend:
    if base_path is not None:
        return FileBackend(require_directory(base_path), settings.lock_timeout)
    return StoreBackend(require_url(store), settings.lock_timeout)
