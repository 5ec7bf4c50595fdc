"""Errands: what a host of a queue needs to know to execute one attempt of a task."""

from typing import Any

import msgspec

from perdure.authoring.context import Info
from perdure.authoring.task import Task
from perdure.core.errors import CorruptJournal
from perdure.core.ids import StepId
from perdure.core.messages import Work

_encode = msgspec.json.Encoder().encode

HEADER_ROOM = 8192
"""Bytes that a header may take of a work's payload."""


class Errand(msgspec.Struct, frozen=True, omit_defaults=True):
    """The header of a work's payload; the input follows it, after a line feed, as the codec made it."""

    task: str
    attempt: int
    program: str
    version: str = ""
    key: str | None = None
    doubts: int = 0
    """How often earlier attempts of the step were in doubt."""
    stops: int = 0
    """In how many of these, and of the doubts about earlier claims, a host was stopped and had ended the attempt."""
    timeout_ms: int | None = None
    """The time limit of an attempt, if it is not the task's own."""

    def info(self, work: Work) -> Info:
        return Info(
            work.run_id, self.program, self.version, self.key, StepId(work.step), self.attempt
        )


def pack_errand(
    task: Task[..., Any], attempt: int, doubts: int, stops: int, info: Info, payload: bytes
) -> bytes:
    limit = task.timeout_ms if task.is_tuned else None
    header = Errand(task.name, attempt, info.program, info.version, info.key, doubts, stops, limit)
    return _encode(header) + b"\n" + payload


def stopped(work: Work) -> Work:
    """The same work once more, after a host that had begun it has ended it in order to stop."""
    errand, payload = unpack_errand(work)
    header = msgspec.structs.replace(errand, stops=errand.stops + 1)
    return msgspec.structs.replace(work, payload=_encode(header) + b"\n" + payload)


def unpack_errand(work: Work) -> tuple[Errand, bytes]:
    header, _, payload = (work.payload or b"").partition(b"\n")
    try:
        return msgspec.json.decode(header, type=Errand), payload
    except msgspec.DecodeError as error:
        raise CorruptJournal(
            f"work {work.step!r} of run {work.run_id!r} can't be read ({error})",
            "it was written by another version of perdure, or changed since",
        ) from error
