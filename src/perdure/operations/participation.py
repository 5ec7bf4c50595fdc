"""One participant's part in one operation, as the ledger's own thread plays it: changes, heartbeats, duties."""

import asyncio
import logging
from collections.abc import Iterable
from datetime import datetime
from typing import Protocol

from perdure.core.errors import OperationError, OperationFailed, ParticipantFenced, PerdureError
from perdure.core.operations import transitions
from perdure.core.operations.data import (
    FrameState,
    LedgerData,
    OperationFailedInfo,
    OperationState,
    Participant,
)
from perdure.core.operations.heartbeat import Beat, Duty, HeartbeatResult, beat, report
from perdure.core.operations.log import LogLine
from perdure.core.operations.names import require_words
from perdure.core.operations.timing import LedgerSettings
from perdure.core.operations.transitions import Change, Changed, Decide, NewCall, Resources
from perdure.core.operations.watch import Watch
from perdure.operations.backend import Backend
from perdure.operations.clock import LedgerClock, moment
from perdure.operations.resources import remove

_log = logging.getLogger("perdure.operations")


class Listener(Protocol):
    """Whoever takes part. Both methods are called from the ledger's thread."""

    def hear_of_failure(self, failure: OperationFailed) -> None:
        """The operation has failed for this participant. Told once."""
        ...

    def is_gone(self) -> bool:
        """Whether nobody is there any more: then heartbeats end, too."""
        ...


class Bystander:
    """Has no calls, and only sees to the end of an operation."""

    def hear_of_failure(self, failure: OperationFailed) -> None:
        """It has nothing to clean up."""

    def is_gone(self) -> bool:
        return False


class Place:
    """What all participations of a ledger share."""

    def __init__(
        self, backend: Backend, settings: LedgerSettings, clock: LedgerClock, max_backups: int
    ) -> None:
        self.backend = backend
        self.settings = settings
        self.clock = clock
        self.max_backups = max_backups


class Participation:
    """Changes of one participant go one after the other, so `held` always agrees with what it has committed."""

    def __init__(
        self, place: Place, operation_id: str, me: Participant, listener: Listener
    ) -> None:
        self.operation_id = operation_id
        self.me = me
        self.held: set[str] = set()
        self._place = place
        self._listener = listener
        self._watch = Watch(me, place.settings)
        self._turn = asyncio.Lock()
        self._pulse: asyncio.Task[None] | None = None
        self._duties: asyncio.Task[None] | None = None
        self._failure: OperationFailed | None = None
        self._is_done = False

    async def join(self) -> LedgerData:
        changed = await self._change(lambda data: transitions.join(data, self.me, self._at()))
        return changed.after

    async def start_call(self, call: NewCall) -> None:
        async with self._turn:
            await self._change(
                lambda data: transitions.start_call(data, self.me, self.held, call, self._at())
            )
            self.held.add(call.call_id)

    async def end_call(self, call_id: str, line: LogLine) -> None:
        async with self._turn:
            await self._change(
                lambda data: transitions.end_call(data, self.me, self.held, call_id, line)
            )
            self.held.discard(call_id)

    async def give_up(self, call_id: str) -> None:
        """Nobody waits for this call to start any more: the next heartbeat removes its frame."""
        async with self._turn:
            self.held.discard(call_id)

    async def keep_resources(self, resources: Resources) -> None:
        async with self._turn:
            await self._change(
                lambda data: transitions.keep_resources(data, self.me, self.held, resources)
            )

    async def hold(self) -> None:
        """Make sure that the calls of this participant are its own, before it removes what they hold."""
        async with self._turn:
            await self._change(lambda data: transitions.hold(data, self.me, self.held, self._at()))

    async def log(self, line: LogLine) -> None:
        await self._change(lambda data: transitions.note(data, self.me, self.held, line))

    async def abort(self, reason: str | None) -> None:
        require_words("reason", reason)
        await self._change(
            lambda data: transitions.abort(data, self.me, self.held, reason, self._at())
        )

    async def complete(self) -> None:
        async with self._turn:
            changed = await self._change(
                lambda data: transitions.complete(data, self.me, self.held, self._at())
            )
            self._is_done = True
        await self._back_up(changed.after)

    def start_pulse(self) -> None:
        if self._pulse is None or self._pulse.done():
            self._pulse = asyncio.get_running_loop().create_task(self._beat_on())

    async def stop_pulse(self) -> None:
        for task in (self._pulse, self._duties):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        self._pulse = self._duties = None

    async def heartbeat(self) -> HeartbeatResult:
        """One heartbeat, and what follows from it."""
        self._require_heard_of()
        result, found = await self._beat()
        if found is not None:
            await self._see_to(found)
        self._require_heard_of()
        return result

    async def cleaned_up(self) -> None:
        """This participant has cleaned up after itself."""
        async with self._turn:
            self.held.clear()
            if not self._is_done:
                await self._place.backend.change(
                    self.operation_id,
                    lambda data: transitions.clean_self(data, self.me, self._at()),
                )

    async def leave(self) -> None:
        """Go, and leave no clean-up behind: finish what this participant coordinates, or hand it over."""
        await self.stop_pulse()
        data = await self._place.backend.load(self.operation_id)
        if data is None or self._is_done:
            return
        self._is_done = True
        is_coordinator = data.coordinator == self.me
        if is_coordinator:
            if data.is_awaited and await self._hand_over():
                return
            data = await self._remove(data)
        is_coordinator |= self._watch.has_coordinated
        if is_coordinator and data.operation_state is OperationState.FAILED:
            await self._back_up(data)

    async def _hand_over(self) -> bool:
        """Whether somebody took the clean-up over. The dead do not: what nobody takes for so long is taken back."""
        backend, settings = self._place.backend, self._place.settings
        await backend.change(self.operation_id, lambda found: transitions.hand_over(found, self.me))
        left_s = settings.staleness
        while left_s > 0:
            pause_s = min(left_s, settings.look_every)
            await asyncio.sleep(pause_s)
            left_s -= pause_s
            data = await backend.load(self.operation_id)
            if data is None or not data.is_handed_over:
                return True
            if not data.is_awaited:
                break
        changed = await backend.change(
            self.operation_id, lambda found: transitions.take_back(found, self.me, self._at())
        )
        return changed is None or changed.after.coordinator != self.me

    async def _beat_on(self) -> None:
        while not self._is_done and not self._listener.is_gone():
            try:
                await self._wait()
                _, found = await self._beat()
            except PerdureError as error:
                # It is tried again; if that lasts, the others will take this participant for dead.
                _log.warning("no heartbeat in operation %s: %s", self.operation_id, error)
                continue
            # Apart, because to remove files may take long, and heartbeats go on.
            if found is not None and (self._duties is None or self._duties.done()):
                self._duties = asyncio.get_running_loop().create_task(self._see_to_quietly(found))

    async def _wait(self) -> None:
        """Until the next heartbeat is due, or something is wrong."""
        settings, clock = self._place.settings, self._place.clock
        left_s = settings.interval(int.from_bytes(clock.entropy(2)))
        while left_s > 0:
            pause_s = min(left_s, settings.look_every)
            await asyncio.sleep(pause_s)
            left_s -= pause_s
            if left_s > 0 and await self._is_alarming():
                # Once a second is enough for a clean-up, too, which takes many heartbeats.
                return

    async def _is_alarming(self) -> bool:
        async with self._turn:
            data = await self._place.backend.load(self.operation_id)
            if data is None:
                return True
            now_ms = self._place.clock.monotonic_ms()
            self._watch.observe(data, now_ms)
            return self._watch.is_alarming(data, now_ms)

    async def _beat(self) -> tuple[HeartbeatResult, Beat | None]:
        async with self._turn:
            now = moment(self._place.clock)
            found: list[Beat] = []

            def decide(data: LedgerData) -> Change:
                found[:] = [beat(data, self.me, self.held, self._watch, now)]
                return Change(found[0].data, found[0].lines)

            changed = await self._place.backend.change(self.operation_id, decide)
            if changed is None:
                self._is_done = True
                gone = await self._gone()
                if isinstance(gone, OperationFailed):
                    self._fail(gone)
                return HeartbeatResult(ledger_exists=False), None
            result = report(changed.before, changed.after, self._watch, now)
            self._watch.observe(changed.after, now.ms)
            return result, found[0]

    async def _see_to_quietly(self, found: Beat) -> None:
        try:
            await self._see_to(found)
        except PerdureError as error:
            _log.warning("clean-up of operation %s is tried again: %s", self.operation_id, error)

    async def _see_to(self, found: Beat) -> None:
        data = found.data
        if found.duty is Duty.STOP:
            self._fail(transitions.fenced(data, self.me))
        elif found.duty is Duty.SWEEP:
            crashed = [frame for frame in data.stack if frame.state is FrameState.CRASHED]
            await _remove_all(path for frame in crashed for path in frame.resources)
            await self._place.backend.change(self.operation_id, transitions.sweep)
        elif found.duty is Duty.CLEAN_SELF:
            self._fail(transitions.failed(data))
        elif found.duty is Duty.REMOVE:
            self._fail(transitions.failed(data))
            await self._remove(data)
        elif found.duty is Duty.BACK_UP:
            self._is_done = True
            await self._back_up(data)

    async def _remove(self, data: LedgerData) -> LedgerData:
        """Resources first: should this process die in between, the next coordinator finds them in the frames."""
        await _remove_all(path for frame in data.stack for path in frame.resources)
        await _remove_all(data.temp_resources)
        changed = await self._place.backend.change(
            self.operation_id, lambda found: transitions.remove_frames(found, self.me, self._at())
        )
        return data if changed is None else changed.after

    async def _back_up(self, data: LedgerData) -> None:
        await _remove_all(data.temp_resources)
        await self._place.backend.back_up(self.operation_id, self._place.max_backups)

    async def _change(self, decide: Decide) -> Changed:
        """A change that a participant asks for: it is refused when the operation is over, or has failed."""
        self._require_heard_of()
        try:
            changed = await self._place.backend.change(self.operation_id, decide)
            if changed is None:
                raise await self._gone()
        except OperationFailed as failure:
            self._fail(failure)
            raise
        return changed

    async def _gone(self) -> OperationError:
        """Why there is no ledger any more."""
        data = await self._place.backend.load_backup(self.operation_id)
        if data is None:
            if not (self._place.max_backups or self.held or self._watch.has_seen_failure):
                # Without calls of this participant it may well have been completed.
                return transitions.forgotten(self.operation_id)
            reason = "its ledger is gone"
            return OperationFailed(
                f"operation {self.operation_id!r} failed: {reason}, and not in the backups either",
                "somebody removed it by hand, or backups are not kept; create another operation",
                OperationFailedInfo(self.operation_id, reason),
            )
        if transitions.is_fenced(data, self.me, self.held):
            return transitions.fenced(data, self.me)
        if data.operation_state is OperationState.COMPLETED:
            return transitions.over(self.operation_id)
        return transitions.failed(data)

    def _fail(self, failure: OperationFailed) -> None:
        if self._failure is None:
            self._failure = failure
            self._is_done |= isinstance(failure, ParticipantFenced)
            self._listener.hear_of_failure(failure)

    def _require_heard_of(self) -> None:
        """Once fenced, always fenced, though it holds nothing any more: who goes on has joined again."""
        if isinstance(self._failure, ParticipantFenced):
            raise self._failure

    def _at(self) -> datetime:
        return moment(self._place.clock).at


async def _remove_all(paths: Iterable[str]) -> None:
    chosen = list(paths)
    if chosen:
        await asyncio.to_thread(remove, chosen)
