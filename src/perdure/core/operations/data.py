"""What an operation's ledger holds, as values, and its JSON form.

The JSON has camelCase names, so that programs in other languages read and write the same files. A name that is
not known here is dropped when a file is written again.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from enum import StrEnum
from typing import NamedTuple, TypeVar

import msgspec

from perdure.core.errors import CorruptOperation, InputError


class OperationState(StrEnum):
    """Where an operation stands: from running to completed, or by way of the clean-up to failed."""

    RUNNING = "running"
    CLEANUP = "cleanup"
    FAILED = "failed"
    COMPLETED = "completed"


class FrameState(StrEnum):
    """Where a call stands. Those of the coordinator of a clean-up are `cleaningUp`."""

    ACTIVE = "active"
    CRASHED = "crashed"
    CLEANING_UP = "cleaningUp"
    CLEANED_UP = "cleanedUp"


LIVE = (FrameState.ACTIVE, FrameState.CLEANING_UP)
"""Frames whose owner must be heard of."""


class Participant(NamedTuple):
    """Who takes part. `session` tells apart processes of one name and one pid, in containers or one after another."""

    participant_id: str
    pid: int
    session: str

    def __str__(self) -> str:
        return f"{self.participant_id!r} (pid {self.pid})"


class StackFrame(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A call that is under way. `beats` counts heartbeats, so that each one changes the frame, whatever clocks say."""

    call_id: str
    participant_id: str
    pid: int
    start_time: datetime
    last_heartbeat: datetime
    state: FrameState = FrameState.ACTIVE
    fail_on_crash: bool = True
    description: str | None = None
    resources: tuple[str, ...] = ()
    session: str = ""
    beats: int = 0

    @property
    def owner(self) -> Participant:
        return Participant(self.participant_id, self.pid, self.session)

    @property
    def is_live(self) -> bool:
        return self.state in LIVE


class LedgerData(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """An operation as its ledger has it.

    `crashed_call_ids` and `failure_reason` outlive the frames that they tell of.
    """

    operation_id: str
    initiator_id: str
    start_time: datetime
    operation_state: OperationState
    last_heartbeat: datetime
    detection_timestamp: datetime | None = None
    removal_timestamp: datetime | None = None
    aborted: bool = False
    stack: tuple[StackFrame, ...] = ()
    temp_resources: tuple[str, ...] = ()
    description: str | None = None
    crashed_call_ids: tuple[str, ...] = ()
    failure_reason: str | None = None

    def frame(self, call_id: str) -> StackFrame | None:
        return next((frame for frame in self.stack if frame.call_id == call_id), None)

    def frames_of(self, participant: Participant) -> list[StackFrame]:
        return [frame for frame in self.stack if frame.owner == participant]

    @property
    def coordinator(self) -> Participant | None:
        """Who coordinates the clean-up."""
        owners = (f.owner for f in self.stack if f.state is FrameState.CLEANING_UP)
        return next(owners, None)

    @property
    def is_handed_over(self) -> bool:
        """Whether there is a clean-up that nobody coordinates."""
        return self.operation_state is OperationState.CLEANUP and self.coordinator is None

    @property
    def is_awaited(self) -> bool:
        """Whether somebody, dead or alive, has yet to clean up after itself."""
        return any(frame.state is FrameState.ACTIVE for frame in self.stack)

    @property
    def is_over(self) -> bool:
        return self.operation_state in (OperationState.FAILED, OperationState.COMPLETED)


_Part = TypeVar("_Part", StackFrame, LedgerData)


class OperationFailedInfo(msgspec.Struct, frozen=True):
    """Why an operation failed, as far as its ledger tells."""

    operation_id: str
    reason: str
    crashed_call_ids: tuple[str, ...] = ()
    aborted: bool = False
    detected_at: datetime | None = None


def failure_of(data: LedgerData) -> OperationFailedInfo:
    return OperationFailedInfo(
        data.operation_id,
        data.failure_reason or ("aborted" if data.aborted else "its clean-up has begun"),
        data.crashed_call_ids,
        data.aborted,
        data.detection_timestamp,
    )


def with_frames(data: LedgerData, frames: Iterable[StackFrame]) -> LedgerData:
    return msgspec.structs.replace(data, stack=tuple(frames))


def wall_time(now_ms: int) -> datetime:
    """Milliseconds since 1970 as the ledger writes them."""
    seconds, ms = divmod(now_ms, 1000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=ms * 1000)


def encode(data: LedgerData) -> bytes:
    """JSON for people and programs. What could not be read again would be lost for all, and is refused."""
    try:
        raw = msgspec.json.encode(data)
        _decode(raw)
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError) as error:
        raise InputError(
            f"the ledger of operation {data.operation_id!r:.200} would not be readable ({error})",
            "pass values of the types that are documented",
        ) from error
    return msgspec.json.format(raw, indent=2) + b"\n"


def decode(raw: bytes, where: str) -> LedgerData:
    try:
        return _decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptOperation(
            f"{where} is not the ledger of an operation ({error})",
            "restore it, or remove it by hand: its participants will take the operation for failed",
        ) from error


def _decode(raw: bytes) -> LedgerData:
    """A time without a zone, as other programs may write it, is of UTC."""
    data = msgspec.json.decode(raw, type=LedgerData)
    return _in_utc(with_frames(data, map(_in_utc, data.stack)))


def _in_utc(part: _Part) -> _Part:
    naive = {
        name: value.replace(tzinfo=UTC)
        for name in part.__struct_fields__
        if isinstance(value := getattr(part, name), datetime) and value.tzinfo is None
    }
    return msgspec.structs.replace(part, **naive) if naive else part
