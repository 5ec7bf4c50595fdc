"""The input of a run that has not begun, as the message to it has it."""

import msgspec

from perdure.core.errors import CorruptJournal
from perdure.core.ids import Guid, RunId, message_guid


class StartInput(msgspec.Struct, frozen=True):
    """What the run begins with, besides its row: tags, trace context, and `payload`, its encoded arguments."""

    tags: dict[str, str] = {}
    payload: bytes = b""
    trace: str | None = None


class _Header(msgspec.Struct, frozen=True, omit_defaults=True):
    tags: dict[str, str] = {}
    trace: str | None = None


def start_guid(run_id: RunId) -> Guid:
    return message_guid(run_id, "admission")


def pack_input(given: StartInput) -> bytes:
    """Tags and trace context as JSON, a line feed, and the arguments."""
    return msgspec.json.encode(_Header(given.tags, given.trace)) + b"\n" + given.payload


def unpack_input(run_id: RunId, packed: bytes | None) -> StartInput:
    text, feed, payload = (packed or b"").partition(b"\n")
    try:
        if not feed:
            raise msgspec.DecodeError("it has no line feed")
        header = msgspec.json.decode(text, type=_Header)
    except msgspec.DecodeError as error:
        raise CorruptJournal(
            f"the input of run {run_id!r}, which has not begun, can't be read: {error}",
            "cancel the run, or restore its message from a backup",
        ) from error
    return StartInput(header.tags, payload, header.trace)
