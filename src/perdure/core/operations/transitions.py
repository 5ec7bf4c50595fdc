"""What can happen to an operation: functions from a ledger to the next one, and the lines that tell of it.

Each is applied under the operation's lock and committed at once. What is refused raises and changes nothing.
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
    failure_of,
    with_frames,
)
from perdure.core.operations.log import LogEvent, LogLevel, LogLine, event_line


class Change(NamedTuple):
    """The next state of a ledger, and what its log says about it."""

    data: LedgerData
    lines: tuple[LogLine, ...] = ()


Decide = Callable[[LedgerData], Change]
"""A pure decision over what a ledger says. It may be asked again; what it raises changes nothing."""


class Changed(NamedTuple):
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


def create(operation_id: str, me: Participant, description: str | None, at: datetime) -> Change:
    data = LedgerData(
        operation_id=operation_id,
        initiator_id=me.participant_id,
        start_time=at,
        operation_state=OperationState.RUNNING,
        last_heartbeat=at,
        description=description,
    )
    detail = "" if description is None else f"description={description}"
    return Change(data, (event_line(at, LogEvent.OPERATION_CREATED, me, detail),))


def join(data: LedgerData, me: Participant, at: datetime) -> Change:
    require_open(data, me, ())
    return Change(data, (event_line(at, LogEvent.PARTICIPANT_JOINED, me),))


def is_fenced(data: LedgerData, me: Participant, held: Collection[str]) -> bool:
    """Whether calls that a participant holds were taken from it."""
    if data.operation_state is OperationState.RUNNING:
        mine = {frame.call_id for frame in data.frames_of(me) if frame.is_live}
        return not mine.issuperset(held)
    return not set(held).isdisjoint(data.crashed_call_ids)


def require_heard_of(data: LedgerData, me: Participant, held: Collection[str]) -> None:
    """Refuse a participant that was taken for dead."""
    if is_fenced(data, me, held):
        raise fenced(data, me)


def require_open(data: LedgerData, me: Participant, held: Collection[str]) -> None:
    """Refuse a participant that was taken for dead, and whatever comes after the end."""
    require_heard_of(data, me, held)
    if data.operation_state is OperationState.COMPLETED:
        raise over(data.operation_id)
    if data.operation_state is not OperationState.RUNNING or data.aborted:
        raise failed(data)


def fenced(data: LedgerData, me: Participant) -> ParticipantFenced:
    info = failure_of(data)
    if data.failure_reason is None and not data.aborted:
        # The operation itself goes on, or went on to its end.
        info = replace(info, reason=f"participant {me} was taken for dead")
    return ParticipantFenced(
        f"participant {me} was silent for too long and taken for dead in operation"
        f" {data.operation_id!r}: its calls were given up",
        "stop its work, undo what must not stay, and join again for new calls",
        info,
    )


def failed(data: LedgerData) -> OperationFailed:
    info = failure_of(data)
    return OperationFailed(
        f"operation {data.operation_id!r} failed: {info.reason}",
        "its participants clean up; create another one",
        info,
    )


def over(operation_id: str) -> OperationOver:
    return OperationOver(f"operation {operation_id!r} is completed", "create another one")


def forgotten(operation_id: str) -> OperationOver:
    return OperationOver(
        f"operation {operation_id!r} is over; how it ended is not known, since no backup is kept",
        "create another one, with max_backups of 1 or more to know",
    )


def start_call(
    data: LedgerData, me: Participant, held: Collection[str], call: NewCall, at: datetime
) -> Change:
    require_open(data, me, held)
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
    return Change(with_frames(data, [*data.stack, frame]), (line,))


def end_call(
    data: LedgerData, me: Participant, held: Collection[str], call_id: str, line: LogLine
) -> Change:
    """The call's frame leaves the stack, however the call ended; `line` says how."""
    require_open(data, me, held)
    return Change(with_frames(data, [f for f in data.stack if f.call_id != call_id]), (line,))


def refreshed(data: LedgerData, me: Participant, held: Collection[str], at: datetime) -> LedgerData:
    """The participant's own frames beat. One that it does not hold is of a start that was given up, and goes."""
    frames = []
    for frame in data.stack:
        if frame.owner != me or not frame.is_live:
            frames.append(frame)
        elif frame.call_id in held or frame.state is FrameState.CLEANING_UP:
            frames.append(replace(frame, last_heartbeat=at, beats=frame.beats + 1))
    return with_frames(data, frames)


def hold(data: LedgerData, me: Participant, held: Collection[str], at: datetime) -> Change:
    """The participant's calls, and what they hold, are its own: from now on for as long as nobody is missed."""
    require_open(data, me, held)
    return Change(refreshed(data, me, held, at))


def note(data: LedgerData, me: Participant, held: Collection[str], line: LogLine) -> Change:
    """A line in the log, whatever became of the operation."""
    require_heard_of(data, me, held)
    return Change(data, (line,))


class Resources(NamedTuple):
    """Temporary resources to add to a call, or to the operation if there is no call, and those to let go."""

    call_id: str | None
    added: tuple[str, ...] = ()
    released: tuple[str, ...] = ()

    def applied(self, paths: Sequence[str]) -> tuple[str, ...]:
        kept = dict.fromkeys((*paths, *self.added))
        return tuple(path for path in kept if path not in self.released)


def keep_resources(
    data: LedgerData, me: Participant, held: Collection[str], resources: Resources
) -> Change:
    require_open(data, me, held)
    if resources.call_id is None:
        return Change(replace(data, temp_resources=resources.applied(data.temp_resources)))
    frames = [
        replace(f, resources=resources.applied(f.resources))
        if f.call_id == resources.call_id
        else f
        for f in data.stack
    ]
    return Change(with_frames(data, frames))


def complete(data: LedgerData, me: Participant, held: Collection[str], at: datetime) -> Change:
    require_open(data, me, held)
    if data.stack:
        calls = ", ".join(f"{f.call_id} of {f.owner}" for f in data.stack)
        raise CallsOpen(
            f"operation {data.operation_id!r} has calls under way: {calls}",
            "end them, or wait until their participants have",
        )
    done = replace(data, operation_state=OperationState.COMPLETED, last_heartbeat=at)
    return Change(done, (event_line(at, LogEvent.OPERATION_COMPLETED, me),))


def abort(
    data: LedgerData, me: Participant, held: Collection[str], reason: str | None, at: datetime
) -> Change:
    """Ask for a clean-up; the first participant to see it begins it. Asked again, or too late, it changes nothing."""
    require_heard_of(data, me, held)
    if data.aborted or data.operation_state is not OperationState.RUNNING:
        return Change(data)
    why = f"aborted by {me.participant_id!r}" + (f": {reason}" if reason else "")
    asked = replace(data, aborted=True, failure_reason=why)
    line = event_line(at, LogEvent.OPERATION_ABORTED, me, why, LogLevel.WARNING)
    return Change(asked, (line,))


def detect(data: LedgerData, me: Participant, stale: Sequence[Participant], at: datetime) -> Change:
    """Phase 1. Mark what crashed. If that must not crash, or somebody aborted, coordinate the clean-up."""
    data, lines = _mark_crashed(data, me, stale, at)
    lost = [f for f in data.stack if f.state is FrameState.CRASHED and f.fail_on_crash]
    if not (lost or data.aborted):
        return Change(data, tuple(lines))
    reason = data.failure_reason or _crash(lost) or "aborted"
    data = replace(
        _coordinated_by(data, me, at),
        operation_state=OperationState.CLEANUP,
        detection_timestamp=at,
        failure_reason=reason,
    )
    line = event_line(at, LogEvent.CLEANUP_STARTED, me, f"reason={reason}", LogLevel.WARNING)
    return Change(data, (*lines, line))


def take_over(
    data: LedgerData, me: Participant, stale: Sequence[Participant], at: datetime
) -> Change:
    """The coordinator of a clean-up is gone, or has handed over: be it."""
    data, lines = _mark_crashed(data, me, stale, at)
    line = event_line(at, LogEvent.COORDINATOR_REPLACED, me, "", LogLevel.WARNING)
    return Change(_coordinated_by(data, me, at), (*lines, line))


def clean_self(data: LedgerData, me: Participant, at: datetime) -> Change:
    """Phase 2. This participant has cleaned up after itself. A coordinator's frames stay what they are."""
    cleaned = _turned(data, me, FrameState.ACTIVE, FrameState.CLEANED_UP)
    if data.operation_state is not OperationState.CLEANUP or cleaned == data:
        return Change(data)
    return Change(cleaned, (event_line(at, LogEvent.PARTICIPANT_CLEANED_UP, me),))


def hand_over(data: LedgerData, me: Participant) -> Change:
    """The coordinator leaves: the next who looks takes over at once."""
    return Change(_turned(data, me, FrameState.CLEANING_UP, FrameState.CLEANED_UP))


def take_back(data: LedgerData, me: Participant, at: datetime) -> Change:
    """What was handed over, and nobody took."""
    return take_over(data, me, (), at) if data.is_handed_over else Change(data)


def remove_frames(data: LedgerData, me: Participant, at: datetime) -> Change:
    """Phase 3. Nothing of the operation is left but its end. Nothing changes if another coordinates by now."""
    if data.operation_state is not OperationState.CLEANUP or data.coordinator != me:
        return Change(data)
    line = event_line(
        at, LogEvent.OPERATION_FAILED, me, f"reason={data.failure_reason}", LogLevel.ERROR
    )
    done = replace(data, operation_state=OperationState.FAILED, removal_timestamp=at, stack=())
    return Change(done, (line,))


def sweep(data: LedgerData) -> Change:
    """A contained crash: its frames are cleaned up, and go."""
    if data.operation_state is not OperationState.RUNNING:
        return Change(data)
    return Change(with_frames(data, [f for f in data.stack if f.state is not FrameState.CRASHED]))


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
    """Its own frames mark the coordinator; one that has none gets one."""
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
    data = _turned(data, me, FrameState.ACTIVE, FrameState.CLEANING_UP)
    return _turned(data, me, FrameState.CLEANED_UP, FrameState.CLEANING_UP)


def _turned(data: LedgerData, me: Participant, before: FrameState, after: FrameState) -> LedgerData:
    return with_frames(
        data,
        [replace(f, state=after) if f.owner == me and f.state is before else f for f in data.stack],
    )
