"""The way in: where operations are created and joined, and looked at from outside."""

import asyncio
import logging
import os
from os import PathLike
from typing import Final

from perdure.core.errors import InputError, StoreClosed, UnknownOperation
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
from perdure.operations.clock import LedgerClock, SystemClock, moment
from perdure.operations.files import FileBackend
from perdure.operations.home import Home
from perdure.operations.inputs import (
    require_directory,
    require_pid,
    require_settings,
    require_url,
)
from perdure.operations.operation import Operation
from perdure.operations.participation import Bystander, Participation, Place
from perdure.operations.rows import StoreBackend

_log = logging.getLogger("perdure.operations")

OUTSIDER: Final = "perdure"
"""Who aborts or recovers an operation if the ledger has no participant id of its own."""


class Ledger:
    """Operations in the files of a directory, or in a store's database.

    `participant_id` is this process's name in operations that it creates or joins, unless it is given there. The
    newest `max_backups` operations that are over are kept. Dispose of a ledger when the process leaves; as an
    `async with` block it does so itself.
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
                "a ledger needs a directory or a store", "pass one of base_path and store, not both"
            )
        if type(max_backups) is not int or max_backups < 0:
            raise InputError(f"max_backups is {max_backups!r}", "pass a whole number, 0 or more")
        if participant_id is not None:
            require_participant_id(participant_id)
        settings = LedgerSettings() if settings is None else require_settings(settings)
        self._participant_id = participant_id
        self._pid = os.getpid() if participant_pid is None else require_pid(participant_pid)
        backend = _backend(base_path, store, settings)
        self._place = Place(backend, settings, clock or SystemClock(), max_backups)
        self._home: Home | None = None
        self._is_disposed = False
        self._opening = asyncio.Lock()
        self._operations: list[Operation] = []

    async def __aenter__(self) -> "Ledger":
        await self._opened()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.dispose()

    async def create_operation(
        self, *, participant_id: str | None = None, description: str | None = None
    ) -> Operation:
        """A new operation, of which this process is the initiator."""
        require_words("description", description)
        home = await self._opened()
        me = self._participant(participant_id)
        clock = self._place.clock
        while True:
            operation_id = new_operation_id(me.participant_id, clock.now_ms(), clock.entropy(4))
            change = transitions.create(operation_id, me, description, moment(clock).at)
            if await home.run(self._place.backend.create(change)):
                return self._taking_part(home, operation_id, me, is_initiator=True)

    async def join_operation(
        self, operation_id: str, *, participant_id: str | None = None
    ) -> Operation:
        """Take part in an operation that another process has created. Under the initiator's name, as the initiator."""
        home = await self._opened()
        me = self._participant(participant_id)
        data = await self.read_operation(operation_id)
        part = Participation(self._place, operation_id, me, Bystander())
        await home.run(part.join())
        is_initiator = data.initiator_id == me.participant_id
        return self._taking_part(home, operation_id, me, is_initiator=is_initiator)

    async def dispose(self) -> None:
        """Leave all operations: calls that are open fail, and a clean-up that this process coordinates is finished,
        or handed over to somebody who has yet to clean up. What keeps it from leaving one keeps it from no other;
        the first such error is raised at the end."""
        home, self._home = self._home, None
        self._is_disposed = True
        if home is None:
            return
        operations, self._operations = self._operations, []
        try:
            left = await asyncio.gather(
                *(one._leave() for one in operations), return_exceptions=True
            )
        finally:
            await home.run(self._place.backend.close())
            await home.close()
        errors = [error for error in left if error is not None]
        for error in errors[1:]:
            _log.warning("one more operation could not be left: %s", error)
        if errors:
            raise errors[0]

    # From outside, without taking part

    async def operation_ids(self, *, backups: bool = False) -> list[str]:
        """The ids of the operations that are not in the backups, or of those that are; oldest first."""
        home = await self._opened()
        return await home.run(self._place.backend.operation_ids(backups=backups))

    async def operations(self, *, backups: bool = False) -> list[LedgerData]:
        """The operations that are not in the backups, or those that are; oldest first."""
        home = await self._opened()
        backend = self._place.backend
        found = []
        for operation_id in await self.operation_ids(backups=backups):
            load = backend.load_backup if backups else backend.load
            data = await home.run(load(operation_id))
            if data is not None:
                found.append(data)
        return found

    async def read_operation(self, operation_id: str) -> LedgerData:
        """What the ledger of an operation says, be it in the backups or not."""
        home = await self._opened()
        require_operation_id(operation_id)
        backend = self._place.backend
        # In this order: an operation may move to the backups in between, and never back.
        for load in (backend.load, backend.load_backup):
            data = await home.run(load(operation_id))
            if data is not None:
                return data
        raise UnknownOperation(
            f"there is no operation {operation_id!r} in {backend.name}",
            "see Ledger.operations(); backups are kept up to max_backups",
        )

    async def read_log(self, operation_id: str, *, debug: bool = False) -> list[str]:
        """The lines of an operation's log, or of its debug log."""
        await self.read_operation(operation_id)
        home = await self._opened()
        return await home.run(self._place.backend.read_log(operation_id, debug=debug))

    async def abort_operation(self, operation_id: str, reason: str | None = None) -> None:
        """Let an operation fail: whoever takes part cleans up. If nobody does, see `recover_operation`."""
        await self.read_operation(operation_id)
        home = await self._opened()
        part = self._bystander(operation_id)
        await home.run(part.abort(reason))

    async def recover_operation(self, operation_id: str) -> LedgerData:
        """See to the end of an operation whose participants may all be gone.

        Watches for as long as it takes to tell the living from the dead, cleans up after a crash, and moves what is
        over to the backups. One without calls, of which nobody is heard, it aborts. Returns what the ledger says
        then: still running, if nothing was wrong.
        """
        data = await self.read_operation(operation_id)
        home = await self._opened()
        part = self._bystander(operation_id)
        settings, clock = self._place.settings, self._place.clock
        patience_ms = settings.staleness_ms + round(2 * settings.heartbeat_longest * 1000)
        if await self._is_abandoned(data, patience_ms):
            await home.run(part.abort("nobody takes part any more"))
        began_ms = clock.monotonic_ms()
        while (await home.run(part.heartbeat())).ledger_exists:
            data = await self.read_operation(operation_id)
            is_well = data.operation_state is OperationState.RUNNING and not data.aborted
            if is_well and clock.monotonic_ms() - began_ms > patience_ms:
                return data
            await asyncio.sleep(settings.heartbeat_shortest / 4)
        return await self.read_operation(operation_id)

    async def _is_abandoned(self, data: LedgerData, patience_ms: int) -> bool:
        """Whether it has no calls, so that nobody can be missed, and nobody is heard of either."""
        clock = self._place.clock
        first, began_ms = data, clock.monotonic_ms()
        while data == first and not (data.stack or data.aborted or data.is_over):
            if clock.monotonic_ms() - began_ms > patience_ms:
                return True
            await asyncio.sleep(self._place.settings.heartbeat_shortest / 4)
            data = await self.read_operation(data.operation_id)
        return False

    async def _opened(self) -> Home:
        if self._is_disposed:
            raise StoreClosed("the ledger is disposed", "use it before that, or make another one")
        async with self._opening:
            if self._home is None:
                home = Home(f"perdure-ledger {self._place.backend.name}")
                try:
                    await home.run(self._place.backend.open())
                except BaseException:
                    await home.close()
                    raise
                self._home = home
            return self._home

    def _taking_part(
        self, home: Home, operation_id: str, me: Participant, *, is_initiator: bool
    ) -> Operation:
        operation = Operation(home, self._place, operation_id, me, is_initiator=is_initiator)
        self._operations.append(operation)
        if self._place.settings.auto_heartbeat:
            operation.start_heartbeat()
        return operation

    def _participant(self, participant_id: str | None) -> Participant:
        chosen = self._participant_id if participant_id is None else participant_id
        if chosen is None:
            raise InputError(
                "no participant id", "pass one here, or to the ledger for all operations"
            )
        session = self._place.clock.entropy(4).hex()
        return Participant(require_participant_id(chosen), self._pid, session)

    def _bystander(self, operation_id: str) -> Participation:
        me = self._participant(self._participant_id or OUTSIDER)
        return Participation(self._place, operation_id, me, Bystander())


def _backend(
    base_path: str | PathLike[str] | None, store: str | None, settings: LedgerSettings
) -> Backend:
    if base_path is not None:
        return FileBackend(require_directory(base_path), settings.lock_timeout)
    return StoreBackend(require_url(store), settings.lock_timeout)
