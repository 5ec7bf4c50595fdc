"""One participant's part in one operation: ledger changes, heartbeats and clean-up duties.

Runs in the ledger's thread.
"""

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
from perdure.core.operations.heartbeat import BeatOutcome, Duty, HeartbeatResult, apply_beat, report
from perdure.core.operations.log import LogLine
from perdure.core.operations.names import require_words
from perdure.core.operations.timing import LedgerSettings
from perdure.core.operations.transitions import (
    BeforeAfter,
    Decide,
    LedgerChange,
    NewCall,
    ResourceChange,
)
from perdure.core.operations.watch import ParticipantWatch
from perdure.operations.backend import Backend
from perdure.operations.clock import LedgerClock, read_clock
from perdure.operations.resources import remove

_log = logging.getLogger("perdure.operations")


class Listener(Protocol):
    """Receives the events of a participation. All methods are called from the ledger's thread."""

    def on_failure(self, failure: OperationFailed) -> None:
        """The operation has failed, or this participant is fenced. Called once."""
        ...

    def on_end(self) -> None:
        """No duty is left for this participant."""
        ...

    def is_closed(self) -> bool:
        """Whether the program's event loop is closed: heartbeats then end."""
        ...


class NullListener:
    """For a participation without calls: aborting or recovering an operation from outside."""

    def on_failure(self, failure: OperationFailed) -> None:
        """There are no calls to clean up."""

    def on_end(self) -> None:
        """There is no `Operation` to remove."""

    def is_closed(self) -> bool:
        return False


class LedgerContext:
    """What all participations of a ledger share: backend, settings, clock."""

    def __init__(
        self, backend: Backend, settings: LedgerSettings, clock: LedgerClock, max_backups: int
    ) -> None:
        self.backend = backend
        self.settings = settings
        self.clock = clock
        self.max_backups = max_backups


class Participation:
    """Changes of one participant are serialized by `_lock`, so `held` always matches its committed calls."""

    def __init__(
        self, context: LedgerContext, operation_id: str, me: Participant, listener: Listener
    ) -> None:
        self.operation_id = operation_id
        self.me = me
        self.held: set[str] = set()
        self._context = context
        self._listener = listener
        self._watch = ParticipantWatch(me, context.settings)
        self._lock = asyncio.Lock()
        self._heartbeats: asyncio.Task[None] | None = None
        self._duties: asyncio.Task[None] | None = None
        self._failure: OperationFailed | None = None
        self._is_done = False

    async def join(self) -> LedgerData:
        changed = await self._change(lambda data: transitions.join(data, self.me, self._at()))
        return changed.after

    async def start_call(self, call: NewCall) -> None:
        async with self._lock:
            await self._change(
                lambda data: transitions.start_call(data, self.me, self.held, call, self._at())
            )
            self.held.add(call.call_id)

    async def end_call(self, call_id: str, line: LogLine) -> None:
        async with self._lock:
            await self._change(
                lambda data: transitions.end_call(data, self.me, self.held, call_id, line)
            )
            self.held.discard(call_id)

    async def forget_call(self, call_id: str) -> None:
        """Drops a call whose start was cancelled: the next heartbeat removes its frame."""
        async with self._lock:
            self.held.discard(call_id)

    async def keep_resources(self, resources: ResourceChange) -> None:
        async with self._lock:
            await self._change(
                lambda data: transitions.keep_resources(data, self.me, self.held, resources)
            )

    async def confirm_ownership(self) -> None:
        """Commits a fresh heartbeat for the calls, or raises if fenced. Precedes the removal of their resources."""
        async with self._lock:
            await self._change(lambda data: transitions.hold(data, self.me, self.held, self._at()))

    async def log(self, line: LogLine) -> None:
        await self._change(lambda data: transitions.note(data, self.me, self.held, line))

    async def abort(self, reason: str | None) -> None:
        require_words("reason", reason)
        await self._change(
            lambda data: transitions.request_abort(data, self.me, self.held, reason, self._at())
        )

    async def complete(self) -> None:
        async with self._lock:
            changed = await self._change(
                lambda data: transitions.complete_operation(data, self.me, self.held, self._at())
            )
            self._is_done = True
        await self._back_up(changed.after)

    def start_heartbeats(self) -> None:
        if self._heartbeats is None or self._heartbeats.done():
            self._heartbeats = asyncio.get_running_loop().create_task(self._send_heartbeats())

    async def stop_heartbeats(self) -> None:
        for task in (self._heartbeats, self._duties):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        self._heartbeats = self._duties = None

    async def heartbeat(self) -> HeartbeatResult:
        """One heartbeat and the duty that follows from it."""
        self._require_not_fenced()
        result, found = await self._beat()
        if found is not None:
            await self._perform_duty(found)
        self._require_not_fenced()
        return result

    async def cleaned_up(self) -> None:
        """Commits: this participant has cleaned up its calls."""
        async with self._lock:
            self.held.clear()
            if not self._is_done:
                await self._context.backend.change(
                    self.operation_id,
                    lambda data: transitions.clean_self(data, self.me, self._at()),
                )

    @property
    def is_done(self) -> bool:
        """Whether no duty is left for this participant."""
        return self._is_done

    async def leave(self, *, aborts: bool = False) -> None:
        """Stops heartbeats. Finishes a clean-up that this participant coordinates, or hands it over.

        With `aborts`, a running operation fails: its initiator leaves without completing it.
        """
        await self.stop_heartbeats()
        backend = self._context.backend
        if aborts and not self._is_done:
            changed = await backend.change(
                self.operation_id,
                lambda data: transitions.give_up(data, self.me, self.held, self._at()),
            )
            data = None if changed is None else changed.after
        else:
            data = await backend.load(self.operation_id)
        if data is None or self._is_done:
            self._is_done = True
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
        """Whether another participant took over the clean-up. Takes it back if none does within the staleness time."""
        backend, settings = self._context.backend, self._context.settings
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

    async def _send_heartbeats(self) -> None:
        while not self._is_done and not self._listener.is_closed():
            try:
                await self._wait()
                _, found = await self._beat()
            except PerdureError as error:
                # Retried at once. If it keeps failing, the others will consider this participant dead.
                _log.warning("heartbeat failed in operation %s: %s", self.operation_id, error)
                continue
            # In its own task: removing files may take long, and heartbeats must continue.
            if found is not None and (self._duties is None or self._duties.done()):
                self._duties = asyncio.get_running_loop().create_task(self._try_duty(found))
        if self._is_done:
            self._listener.on_end()

    async def _wait(self) -> None:
        """Waits until the next heartbeat is due, or until the ledger shows a reason to beat now."""
        settings, clock = self._context.settings, self._context.clock
        left_s = settings.interval(int.from_bytes(clock.entropy(2)))
        while left_s > 0:
            pause_s = min(left_s, settings.look_every)
            await asyncio.sleep(pause_s)
            left_s -= pause_s
            if left_s > 0 and await self._needs_heartbeat_now():
                # Checking every `look_every` is also often enough for a clean-up, which takes many heartbeats.
                return

    async def _needs_heartbeat_now(self) -> bool:
        async with self._lock:
            data = await self._context.backend.load(self.operation_id)
            if data is None:
                return True
            now_ms = self._context.clock.monotonic_ms()
            self._watch.observe(data, now_ms)
            return self._watch.is_alarming(data, now_ms)

    async def _beat(self) -> tuple[HeartbeatResult, BeatOutcome | None]:
        async with self._lock:
            now = read_clock(self._context.clock)
            found: list[BeatOutcome] = []

            def decide(data: LedgerData) -> LedgerChange:
                found[:] = [apply_beat(data, self.me, self.held, self._watch, now)]
                return LedgerChange(found[0].data, found[0].lines)

            changed = await self._context.backend.change(self.operation_id, decide)
            if changed is None:
                self._is_done = True
                gone = await self._missing_ledger_error()
                if isinstance(gone, OperationFailed):
                    self._fail(gone)
                return HeartbeatResult(ledger_exists=False), None
            result = report(changed.before, changed.after, self._watch, now)
            self._watch.observe(changed.after, now.ms)
            return result, found[0]

    async def _try_duty(self, found: BeatOutcome) -> None:
        try:
            await self._perform_duty(found)
        except PerdureError as error:
            _log.warning(
                "clean-up of operation %s failed, will retry: %s", self.operation_id, error
            )

    async def _perform_duty(self, found: BeatOutcome) -> None:
        data = found.data
        if found.duty is Duty.STOP:
            self._fail(transitions.participant_fenced(data, self.me))
        elif found.duty is Duty.SWEEP:
            crashed = [frame for frame in data.stack if frame.state is FrameState.CRASHED]
            await _remove_all(path for frame in crashed for path in frame.resources)
            await self._context.backend.change(self.operation_id, transitions.remove_crashed_frames)
        elif found.duty is Duty.CLEAN_SELF:
            self._fail(transitions.operation_failed(data))
        elif found.duty is Duty.REMOVE:
            self._fail(transitions.operation_failed(data))
            await self._remove(data)
        elif found.duty is Duty.BACK_UP:
            self._is_done = True
            await self._back_up(data)

    async def _remove(self, data: LedgerData) -> LedgerData:
        """Removes resources before their frames: if this process dies in between, the next coordinator finds them."""
        await _remove_all(path for frame in data.stack for path in frame.resources)
        await _remove_all(data.temp_resources)
        changed = await self._context.backend.change(
            self.operation_id, lambda found: transitions.remove_frames(found, self.me, self._at())
        )
        return data if changed is None else changed.after

    async def _back_up(self, data: LedgerData) -> None:
        await _remove_all(data.temp_resources)
        await self._context.backend.back_up(self.operation_id, self._context.max_backups)

    async def _change(self, decide: Decide) -> BeforeAfter:
        """Commits a change of this participant. Raises if the operation has ended or failed."""
        self._require_not_fenced()
        try:
            changed = await self._context.backend.change(self.operation_id, decide)
            if changed is None:
                raise await self._missing_ledger_error()
        except OperationFailed as failure:
            self._fail(failure)
            raise
        return changed

    async def _missing_ledger_error(self) -> OperationError:
        """The error that explains why the ledger is gone."""
        data = await self._context.backend.load_backup(self.operation_id)
        if data is None:
            if not (self._context.max_backups or self.held or self._watch.has_seen_failure):
                # No backups are kept, and this participant had no calls: the operation may have been completed.
                return transitions.operation_forgotten(self.operation_id)
            reason = "its ledger is gone"
            return OperationFailed(
                f"operation {self.operation_id!r} failed: {reason}, and it is not in the backups",
                "create another operation; to keep ended ones, raise max_backups and do not delete their files",
                OperationFailedInfo(self.operation_id, reason),
            )
        if transitions.is_fenced(data, self.me, self.held):
            return transitions.participant_fenced(data, self.me)
        if data.operation_state is OperationState.COMPLETED:
            return transitions.operation_over(self.operation_id)
        return transitions.operation_failed(data)

    def _fail(self, failure: OperationFailed) -> None:
        if self._failure is None:
            self._failure = failure
            self._is_done |= isinstance(failure, ParticipantFenced)
            self._listener.on_failure(failure)

    def _require_not_fenced(self) -> None:
        """A fenced participation stays fenced, also without calls. The process has to join again."""
        if isinstance(self._failure, ParticipantFenced):
            raise self._failure

    def _at(self) -> datetime:
        return read_clock(self._context.clock).at


async def _remove_all(paths: Iterable[str]) -> None:
    chosen = list(paths)
    if chosen:
        await asyncio.to_thread(remove, chosen)
