"""The input of a run that has not begun, as the message to it has it."""

import msgspec

from perdure.core.errors import CorruptJournal
from perdure.core.ids import Guid, RunId, message_guid


class StartHead(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What the run begins with, besides its row and its arguments: its tags, and the trace that it belongs to."""

    tags: dict[str, str] = {}
    trace: str | None = None


def start_guid(run_id: RunId) -> Guid:
    return message_guid(run_id, "admission")


def pack_input(head: StartHead, payload: bytes) -> bytes:
    """The head as JSON, a line feed, and `payload`, the encoded arguments."""
    return msgspec.json.encode(head) + b"\n" + payload


def unpack_input(run_id: RunId, packed: bytes | None) -> tuple[StartHead, bytes]:
    head, feed, payload = (packed or b"").partition(b"\n")
    try:
        if not feed:
            raise msgspec.DecodeError("it has no line feed")
        return msgspec.json.decode(head, type=StartHead), payload
    except msgspec.DecodeError as error:
        raise CorruptJournal(
            f"the input of run {run_id!r}, which has not begun, can't be read: {error}",
            "cancel the run, or restore its message from a backup",
        ) from error
