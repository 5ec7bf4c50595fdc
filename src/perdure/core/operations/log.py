"""The operation's log: its events, its levels, and how a line looks."""

from datetime import datetime
from enum import StrEnum

import msgspec

from perdure.core.operations.data import Participant


class LogLevel(StrEnum):
    """Level of a line. The debug log has all lines, the log those above `debug`."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogEvent(StrEnum):
    """Events in an operation's log."""

    OPERATION_CREATED = "OPERATION_CREATED"
    PARTICIPANT_JOINED = "PARTICIPANT_JOINED"
    CALL_STARTED = "CALL_STARTED"
    CALL_SPAWNED = "CALL_SPAWNED"
    CALL_COMPLETED = "CALL_COMPLETED"
    CALL_ENDED = "CALL_ENDED"
    CALL_FAILED = "CALL_FAILED"
    CRASH_DETECTED = "CRASH_DETECTED"
    CLEANUP_STARTED = "CLEANUP_STARTED"
    OPERATION_FAILED = "OPERATION_FAILED"
    OPERATION_COMPLETED = "OPERATION_COMPLETED"
    OPERATION_ABORTED = "OPERATION_ABORTED"
    COORDINATOR_REPLACED = "COORDINATOR_REPLACED"
    PARTICIPANT_CLEANED_UP = "PARTICIPANT_CLEANED_UP"


class LogLine(msgspec.Struct, frozen=True):
    """One line. `text` never contains a line break, so that logged data can't forge a line."""

    at: datetime
    level: LogLevel
    text: str

    def __str__(self) -> str:
        stamp = self.at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return f"{stamp} {self.level.upper():<7} {self.text}"


def message_line(
    at: datetime, who: Participant, message: str, level: LogLevel, depth: int = 0
) -> LogLine:
    """A message of the program, indented by the `depth` of its call."""
    text = f"{'  ' * depth}[{who.participant_id}] {message}"
    return LogLine(at, level, _on_one_line(text))


def event_line(
    at: datetime,
    event: LogEvent,
    who: Participant,
    detail: str = "",
    level: LogLevel = LogLevel.INFO,
) -> LogLine:
    """An event, with its participant."""
    text = f"{event} participant={who.participant_id} pid={who.pid}"
    return LogLine(at, level, _on_one_line(f"{text} {detail}" if detail else text))


def _on_one_line(text: str) -> str:
    """Line breaks, NUL and other control characters as escapes, and a lone surrogate as a question mark."""
    plain = "".join(c if c.isprintable() or c == "\t" else repr(c)[1:-1] for c in text)
    return plain.encode(errors="replace").decode()
