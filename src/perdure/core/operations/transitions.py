"""Transitions of an operation: pure functions from a ledger to the next one and its log lines.

Each is applied under the operation's lock and committed at once. A refused transition raises and changes nothing.
"""

from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import NamedTuple

from msgspec.structs import replace

from perdure.core.errors import CallsOpen, OperationFailed, OperationOver, ParticipantFenced
from perdure.core.operations.data import (
    FrameState,
    LedgerData,
    OperationState,
    Participant,
    StackFrame,
    failure_info,
    with_frames,
)
from perdure.core.operations.log import LogEvent, LogLevel, LogLine, event_line


class LedgerChange(NamedTuple):
    """The next state of a ledger, and its log lines."""

    data: LedgerData
    lines: tuple[LogLine, ...] = ()


Decide = Callable[[LedgerData], LedgerChange]
"""A pure decision over a ledger. It may be called again; if it raises, nothing changes."""


class BeforeAfter(NamedTuple):
    """A ledger before and after a change."""

    before: LedgerData
    after: LedgerData


class NewCall(NamedTuple):
    """A call that is about to start."""

    call_id: str
    description: str | None = None
    fail_on_crash: bool = True
    resources: tuple[str, ...] = ()
    is_spawned: bool = False


def create(
    operation_id: str, me: Participant, description: str | None, at: datetime
) -> LedgerChange:
    data = LedgerData(
        operation_id=operation_id,
        initiator_id=me.participant_id,
        start_time=at,
        operation_state=OperationState.RUNNING,
        last_heartbeat=at,
        description=description,
    )
    detail = "" if description is None else f"description={description}"
    return LedgerChange(data, (event_line(at, LogEvent.OPERATION_CREATED, me, detail),))


def join(data: LedgerData, me: Participant, at: datetime) -> LedgerChange:
    require_running(data, me, ())
    return LedgerChange(data, (event_line(at, LogEvent.PARTICIPANT_JOINED, me),))


def is_fenced(data: LedgerData, me: Participant, held: Collection[str]) -> bool:
    """Whether calls that the participant holds were marked as crashed or removed."""
    if data.operation_state is OperationState.RUNNING:
        mine = {frame.call_id for frame in data.frames_of(me) if frame.is_live}
        return not mine.issuperset(held)
    return not set(held).isdisjoint(data.crashed_call_ids)


def require_not_fenced(data: LedgerData, me: Participant, held: Collection[str]) -> None:
    """Refuse a participant that was declared dead."""
    if is_fenced(data, me, held):
        raise participant_fenced(data, me)


def require_running(data: LedgerData, me: Participant, held: Collection[str]) -> None:
    """Refuse a participant that was declared dead, and any change of an operation that is not running."""
    require_not_fenced(data, me, held)
    if data.operation_state is OperationState.COMPLETED:
        raise operation_over(data.operation_id)
    if data.operation_state is not OperationState.RUNNING or data.aborted:
        raise operation_failed(data)


def participant_fenced(data: LedgerData, me: Participant) -> ParticipantFenced:
    info = failure_info(data)
    if data.failure_reason is None and not data.aborted:
        # The operation itself has not failed.
        info = replace(info, reason=f"participant {me} was declared dead")
    return ParticipantFenced(
        f"participant {me} was silent for too long and declared dead in operation"
        f" {data.operation_id!r}: its calls were abandoned",
        "stop its work, undo its effects, and join again for new calls",
        info,
    )


def operation_failed(data: LedgerData) -> OperationFailed:
    info = failure_info(data)
    return OperationFailed(
        f"operation {data.operation_id!r} failed: {info.reason}",
        "its participants clean up; create another one",
        info,
    )


def operation_over(operation_id: str) -> OperationOver:
    return OperationOver(f"operation {operation_id!r} is completed", "create another one")


def operation_forgotten(operation_id: str) -> OperationOver:
    return OperationOver(
        f"operation {operation_id!r} is over; how it ended is not known, since no backup is kept",
        "create another one, with max_backups of 1 or more to know",
    )


def start_call(
    data: LedgerData, me: Participant, held: Collection[str], call: NewCall, at: datetime
) -> LedgerChange:
    require_running(data, me, held)
    frame = StackFrame(
        call_id=call.call_id,
        participant_id=me.participant_id,
        pid=me.pid,
        session=me.session,
        start_time=at,
        last_heartbeat=at,
        fail_on_crash=call.fail_on_crash,
        description=call.description,
        resources=call.resources,
    )
    event = LogEvent.CALL_SPAWNED if call.is_spawned else LogEvent.CALL_STARTED
    about = "" if call.description is None else f" description={call.description}"
    line = event_line(at, event, me, f"call={call.call_id}{about}")
    return LedgerChange(with_frames(data, [*data.stack, frame]), (line,))


def end_call(
    data: LedgerData, me: Participant, held: Collection[str], call_id: str, line: LogLine
) -> LedgerChange:
    """The call's frame leaves the stack, however the call ended; `line` says how."""
    require_running(data, me, held)
    return LedgerChange(with_frames(data, [f for f in data.stack if f.call_id != call_id]), (line,))


def refreshed(data: LedgerData, me: Participant, held: Collection[str], at: datetime) -> LedgerData:
    """Refresh the participant's own frames. Frames that it does not hold come from an abandoned start: remove them."""
    frames = []
    for frame in data.stack:
        if frame.owner != me or not frame.is_live:
            frames.append(frame)
        elif frame.call_id in held or frame.state is FrameState.CLEANING_UP:
            frames.append(replace(frame, last_heartbeat=at, beats=frame.beats + 1))
    return with_frames(data, frames)


def hold(data: LedgerData, me: Participant, held: Collection[str], at: datetime) -> LedgerChange:
    """Refresh the participant's calls, so that it owns them and their resources for another staleness period."""
    require_running(data, me, held)
    return LedgerChange(refreshed(data, me, held, at))


def note(data: LedgerData, me: Participant, held: Collection[str], line: LogLine) -> LedgerChange:
    """Write a log line, in any state of the operation."""
    require_not_fenced(data, me, held)
    return LedgerChange(data, (line,))


class ResourceChange(NamedTuple):
    """Temporary resources to add to a call, or to the operation without a call, and those to release."""

    call_id: str | None
    added: tuple[str, ...] = ()
    released: tuple[str, ...] = ()

    def applied(self, paths: Sequence[str]) -> tuple[str, ...]:
        kept = dict.fromkeys((*paths, *self.added))
        return tuple(path for path in kept if path not in self.released)


def keep_resources(
    data: LedgerData, me: Participant, held: Collection[str], resources: ResourceChange
) -> LedgerChange:
    require_running(data, me, held)
    if resources.call_id is None:
        return LedgerChange(replace(data, temp_resources=resources.applied(data.temp_resources)))
    frames = [
        replace(f, resources=resources.applied(f.resources))
        if f.call_id == resources.call_id
        else f
        for f in data.stack
    ]
    return LedgerChange(with_frames(data, frames))


def complete_operation(
    data: LedgerData, me: Participant, held: Collection[str], at: datetime
) -> LedgerChange:
    require_running(data, me, held)
    if data.stack:
        calls = ", ".join(f"{f.call_id} of {f.owner}" for f in data.stack)
        raise CallsOpen(
            f"operation {data.operation_id!r} has calls under way: {calls}",
            "end them, or wait until their participants have",
        )
    done = replace(data, operation_state=OperationState.COMPLETED, last_heartbeat=at)
    return LedgerChange(done, (event_line(at, LogEvent.OPERATION_COMPLETED, me),))


def request_abort(
    data: LedgerData, me: Participant, held: Collection[str], reason: str | None, at: datetime
) -> LedgerChange:
    """Request a clean-up; the first participant to see it starts it. A repeated or late request changes nothing."""
    require_not_fenced(data, me, held)
    if data.aborted or data.operation_state is not OperationState.RUNNING:
        return LedgerChange(data)
    why = f"aborted by {me.participant_id!r}" + (f": {reason}" if reason else "")
    asked = replace(data, aborted=True, failure_reason=why)
    line = event_line(at, LogEvent.OPERATION_ABORTED, me, why, LogLevel.WARNING)
    return LedgerChange(asked, (line,))


def give_up(data: LedgerData, me: Participant, held: Collection[str], at: datetime) -> LedgerChange:
    """The initiator leaves an operation without completing it. Only the initiator can complete it, so it fails.

    Participants with open calls see the abort and clean up; without any, the initiator does. The operation continues
    if one of them has the initiator's name.
    """
    others = [frame for frame in data.stack if frame.is_live and frame.owner != me]
    is_carried_on = any(frame.participant_id == me.participant_id for frame in others)
    is_running = data.operation_state is OperationState.RUNNING
    if not is_running or is_carried_on or is_fenced(data, me, held):
        return LedgerChange(data)
    asked = request_abort(data, me, held, "its initiator left without completing it", at)
    if others:
        return asked
    begun = detect(asked.data, me, (), at)
    return LedgerChange(begun.data, (*asked.lines, *begun.lines))


def detect(
    data: LedgerData, me: Participant, stale: Sequence[Participant], at: datetime
) -> LedgerChange:
    """Phase 1. Mark crashed calls. If one of them must not crash, or on an abort, coordinate the clean-up."""
    data, lines = _mark_crashed(data, me, stale, at)
    lost = [f for f in data.stack if f.state is FrameState.CRASHED and f.fail_on_crash]
    if not (lost or data.aborted):
        return LedgerChange(data, tuple(lines))
    reason = data.failure_reason or _crash(lost) or "aborted"
    data = replace(
        _coordinated_by(data, me, at),
        operation_state=OperationState.CLEANUP,
        detection_timestamp=at,
        failure_reason=reason,
    )
    line = event_line(at, LogEvent.CLEANUP_STARTED, me, f"reason={reason}", LogLevel.WARNING)
    return LedgerChange(data, (*lines, line))


def take_over(
    data: LedgerData, me: Participant, stale: Sequence[Participant], at: datetime
) -> LedgerChange:
    """Become the coordinator of a clean-up whose coordinator is gone or has handed over."""
    data, lines = _mark_crashed(data, me, stale, at)
    line = event_line(at, LogEvent.COORDINATOR_REPLACED, me, "", LogLevel.WARNING)
    return LedgerChange(_coordinated_by(data, me, at), (*lines, line))


def clean_self(data: LedgerData, me: Participant, at: datetime) -> LedgerChange:
    """Phase 2. This participant has cleaned up its calls. A coordinator's frames keep their state."""
    cleaned = _with_state(data, me, FrameState.ACTIVE, FrameState.CLEANED_UP)
    if data.operation_state is not OperationState.CLEANUP or cleaned == data:
        return LedgerChange(data)
    return LedgerChange(cleaned, (event_line(at, LogEvent.PARTICIPANT_CLEANED_UP, me),))


def hand_over(data: LedgerData, me: Participant) -> LedgerChange:
    """The coordinator leaves: the next participant that reads the ledger takes over."""
    return LedgerChange(_with_state(data, me, FrameState.CLEANING_UP, FrameState.CLEANED_UP))


def take_back(data: LedgerData, me: Participant, at: datetime) -> LedgerChange:
    """Coordinate again if no other participant has taken over."""
    return take_over(data, me, (), at) if data.is_handed_over else LedgerChange(data)


def remove_frames(data: LedgerData, me: Participant, at: datetime) -> LedgerChange:
    """Phase 3. Remove all frames; the operation has failed. Changes nothing if another participant coordinates now."""
    if data.operation_state is not OperationState.CLEANUP or data.coordinator != me:
        return LedgerChange(data)
    line = event_line(
        at, LogEvent.OPERATION_FAILED, me, f"reason={data.failure_reason}", LogLevel.ERROR
    )
    done = replace(data, operation_state=OperationState.FAILED, removal_timestamp=at, stack=())
    return LedgerChange(done, (line,))


def remove_crashed_frames(data: LedgerData) -> LedgerChange:
    """Remove the frames of contained crashes, after their clean-up."""
    if data.operation_state is not OperationState.RUNNING:
        return LedgerChange(data)
    return LedgerChange(
        with_frames(data, [f for f in data.stack if f.state is not FrameState.CRASHED])
    )


def _mark_crashed(
    data: LedgerData, me: Participant, stale: Sequence[Participant], at: datetime
) -> tuple[LedgerData, list[LogLine]]:
    lines, crashed = [], list(data.crashed_call_ids)
    for owner in stale:
        calls = [frame.call_id for frame in data.frames_of(owner) if frame.is_live]
        crashed += calls
        detail = f"crashed={owner.participant_id} crashedPid={owner.pid} calls={','.join(calls)}"
        lines.append(event_line(at, LogEvent.CRASH_DETECTED, me, detail, LogLevel.WARNING))
    frames = [
        replace(f, state=FrameState.CRASHED) if f.is_live and f.owner in stale else f
        for f in data.stack
    ]
    return replace(data, stack=tuple(frames), crashed_call_ids=tuple(crashed)), lines


def _crash(lost: Sequence[StackFrame]) -> str:
    owners = dict.fromkeys(str(frame.owner) for frame in lost)
    return f"participant {', '.join(owners)} crashed" if owners else ""


def _coordinated_by(data: LedgerData, me: Participant, at: datetime) -> LedgerData:
    """Mark the participant's frames as the coordinator's; without frames it gets one."""
    if not data.frames_of(me):
        marker = StackFrame(
            call_id=f"cleanup_{me.participant_id}_{me.session}",
            participant_id=me.participant_id,
            pid=me.pid,
            session=me.session,
            start_time=at,
            last_heartbeat=at,
            fail_on_crash=False,
            description="coordinates the clean-up",
        )
        data = with_frames(data, [*data.stack, marker])
    data = _with_state(data, me, FrameState.ACTIVE, FrameState.CLEANING_UP)
    return _with_state(data, me, FrameState.CLEANED_UP, FrameState.CLEANING_UP)


def _with_state(
    data: LedgerData, me: Participant, before: FrameState, after: FrameState
) -> LedgerData:
    return with_frames(
        data,
        [replace(f, state=after) if f.owner == me and f.state is before else f for f in data.stack],
    )
