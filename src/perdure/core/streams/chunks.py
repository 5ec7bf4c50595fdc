"""Chunks: the values of a stream, each with the execution that appended it."""

from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from perdure.core.ids import RunId, StepId


class ChunkState(StrEnum):
    """Whether a chunk counts: that of a completed attempt does, that of an abandoned one does not."""

    PENDING = "pending"
    COMPLETED = "completed"
    ABANDONED = "abandoned"


class Origin(NamedTuple):
    """One execution of a step. A queued attempt is executed again when its lease ends: `claim` tells."""

    step: StepId
    attempt: int = 1
    claim: int = 1


ROOT: Final = Origin(StepId("root"))
"""The workflow itself. Its chunks commit with its entries, so they count as soon as they are there."""


ChunkKey = tuple[RunId, str, StepId, int, int, int]
"""What makes a chunk the same when it is written again: run, stream, origin and number."""


class NewChunk(msgspec.Struct, frozen=True, gc=False):
    """A chunk on its way into a stream. `number` counts those of its origin in that stream: two of one
    number are one."""

    run_id: RunId
    name: str
    origin: Origin
    number: int
    payload: bytes
    at_ms: int

    @property
    def key(self) -> ChunkKey:
        return self.run_id, self.name, *self.origin, self.number


class StoredChunk(msgspec.Struct, frozen=True, gc=False):
    """A chunk at its place in a stream. Positions have no gaps, and are those of the commits."""

    position: int
    origin: Origin
    payload: bytes
    at_ms: int
