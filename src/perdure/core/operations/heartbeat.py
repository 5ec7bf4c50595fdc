"""One heartbeat: refresh the participant's frames, detect crashed peers, and decide what to do next."""

from collections.abc import Collection
from datetime import datetime
from enum import Enum, auto
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from perdure.core.operations.data import FrameState, LedgerData, OperationState, Participant
from perdure.core.operations.log import LogLine
from perdure.core.operations.transitions import (
    LedgerChange,
    detect,
    is_fenced,
    refreshed,
    take_over,
)
from perdure.core.operations.watch import ParticipantWatch


class Duty(Enum):
    """What the participant has to do after its heartbeat."""

    NONE = auto()
    STOP = auto()
    """This participant was declared dead: stop."""
    SWEEP = auto()
    """Clean up after contained crashes."""
    CLEAN_SELF = auto()
    """The operation has failed: clean up the participant's own calls."""
    REMOVE = auto()
    """As coordinator, after the time for self clean-up: clean up for the others, and remove the frames."""
    BACK_UP = auto()
    """Move the operation to the backups."""


class Moment(NamedTuple):
    """Now: wall-clock time, and the observer's monotonic clock."""

    at: datetime
    ms: int


class BeatOutcome(NamedTuple):
    """The ledger after a heartbeat, its log lines, and the next duty."""

    data: LedgerData
    lines: tuple[LogLine, ...]
    duty: Duty


class HeartbeatResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a heartbeat found and did. Ages count from when this participant first saw each heartbeat."""

    abort_flag: bool = False
    ledger_exists: bool = True
    heartbeat_updated: bool = False
    stack_depth: int = 0
    temp_resource_count: int = 0
    heartbeat_age_ms: int = 0
    is_stale: bool = False
    stack_participants: tuple[str, ...] = ()
    participant_heartbeat_ages: dict[str, int] = {}
    stale_participants: tuple[str, ...] = ()
    has_stale_children: bool = False
    data_before: LedgerData | None = None
    data_after: LedgerData | None = None


def apply_beat(
    data: LedgerData, me: Participant, held: Collection[str], watch: ParticipantWatch, now: Moment
) -> BeatOutcome:
    """The heartbeat of `me`. `held` are the calls that it believes to be open."""
    watch.observe(data, now.ms)
    if is_fenced(data, me, held):
        return BeatOutcome(data, (), Duty.STOP)
    if data.operation_state is OperationState.RUNNING:
        return _beat_running(data, me, held, watch, now)
    if data.operation_state is OperationState.CLEANUP:
        return _beat_in_cleanup(data, me, held, watch, now)
    return BeatOutcome(data, (), Duty.BACK_UP if watch.is_backup_due(now.ms) else Duty.NONE)


def _beat_running(
    data: LedgerData, me: Participant, held: Collection[str], watch: ParticipantWatch, now: Moment
) -> BeatOutcome:
    change = LedgerChange(replace(refreshed(data, me, held, now.at), last_heartbeat=now.at))
    stale = watch.stale(now.ms)
    if stale or data.aborted:
        change = detect(change.data, me, stale, now.at)
    duty = Duty.NONE
    if change.data.operation_state is OperationState.CLEANUP:
        duty = Duty.CLEAN_SELF
    elif any(frame.state is FrameState.CRASHED for frame in change.data.stack):
        duty = Duty.SWEEP
    return BeatOutcome(change.data, change.lines, duty)


def _beat_in_cleanup(
    data: LedgerData, me: Participant, held: Collection[str], watch: ParticipantWatch, now: Moment
) -> BeatOutcome:
    change = LedgerChange(refreshed(data, me, held, now.at))
    gone = [owner for owner in watch.stale(now.ms) if owner == data.coordinator]
    if gone or data.coordinator is None:
        change = take_over(change.data, me, gone, now.at)
    is_mine = change.data.coordinator == me
    duty = Duty.REMOVE if is_mine and watch.is_removal_due(now.ms) else Duty.CLEAN_SELF
    return BeatOutcome(change.data, change.lines, duty)


def report(
    before: LedgerData, after: LedgerData, watch: ParticipantWatch, now: Moment
) -> HeartbeatResult:
    """The full result of a heartbeat. Call it before the watch observes the ledger again."""
    ages: dict[str, int] = {}
    for owner, age_ms in watch.ages_ms(now.ms).items():
        ages[owner.participant_id] = max(age_ms, ages.get(owner.participant_id, 0))
    stale = tuple(dict.fromkeys(owner.participant_id for owner in watch.stale(now.ms)))
    age_ms = watch.operation_age_ms(now.ms)
    return HeartbeatResult(
        abort_flag=after.aborted,
        heartbeat_updated=after != before,
        stack_depth=len(after.stack),
        temp_resource_count=len(after.temp_resources),
        heartbeat_age_ms=age_ms,
        is_stale=watch.is_too_old(age_ms),
        stack_participants=tuple(dict.fromkeys(f.participant_id for f in after.stack)),
        participant_heartbeat_ages=ages,
        stale_participants=stale,
        has_stale_children=bool(stale),
        data_before=before,
        data_after=after,
    )
