"""The content of an operation's ledger, and its JSON form.

The JSON has camelCase names, so that programs in other languages read and write the same files. Unknown names are
dropped when a file is rewritten.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from enum import StrEnum
from typing import NamedTuple, TypeVar

import msgspec

from perdure.core.errors import CorruptOperation, InputError


class OperationState(StrEnum):
    """State of an operation: running, then completed; or clean-up, then failed."""

    RUNNING = "running"
    CLEANUP = "cleanup"
    FAILED = "failed"
    COMPLETED = "completed"


class FrameState(StrEnum):
    """State of a call. The frames of a clean-up's coordinator are `cleaningUp`."""

    ACTIVE = "active"
    CRASHED = "crashed"
    CLEANING_UP = "cleaningUp"
    CLEANED_UP = "cleanedUp"


LIVE = (FrameState.ACTIVE, FrameState.CLEANING_UP)
"""Frames whose owner must send heartbeats."""


class Participant(NamedTuple):
    """A participant. `session` distinguishes processes with the same name and pid (containers, reused pids)."""

    participant_id: str
    pid: int
    session: str

    def __str__(self) -> str:
        return f"{self.participant_id!r} (pid {self.pid})"


class StackFrame(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """An open call. `beats` counts heartbeats, so that each one changes the frame even if the clock stands still."""

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
    """The ledger of an operation.

    `crashed_call_ids` and `failure_reason` stay when the frames are removed.
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
        """The participant that coordinates the clean-up, if any."""
        owners = (f.owner for f in self.stack if f.state is FrameState.CLEANING_UP)
        return next(owners, None)

    @property
    def is_handed_over(self) -> bool:
        """Whether a clean-up has no coordinator."""
        return self.operation_state is OperationState.CLEANUP and self.coordinator is None

    @property
    def is_awaited(self) -> bool:
        """Whether some participant, dead or alive, has not cleaned up its calls."""
        return any(frame.state is FrameState.ACTIVE for frame in self.stack)

    @property
    def is_over(self) -> bool:
        return self.operation_state in (OperationState.FAILED, OperationState.COMPLETED)


_Part = TypeVar("_Part", StackFrame, LedgerData)


class OperationFailedInfo(msgspec.Struct, frozen=True):
    """Why an operation failed, by its ledger."""

    operation_id: str
    reason: str
    crashed_call_ids: tuple[str, ...] = ()
    aborted: bool = False
    detected_at: datetime | None = None


def failure_info(data: LedgerData) -> OperationFailedInfo:
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
    """Indented JSON. A ledger that could not be decoded again is refused."""
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
            "restore it, or remove it by hand: its participants then treat the operation as failed",
        ) from error


def _decode(raw: bytes) -> LedgerData:
    """Decode; a time without a zone, as other programs may write it, is UTC."""
    data = msgspec.json.decode(raw, type=LedgerData)
    return _in_utc(with_frames(data, map(_in_utc, data.stack)))


def _in_utc(part: _Part) -> _Part:
    naive = {
        name: value.replace(tzinfo=UTC)
        for name in part.__struct_fields__
        if isinstance(value := getattr(part, name), datetime) and value.tzinfo is None
    }
    return msgspec.structs.replace(part, **naive) if naive else part
