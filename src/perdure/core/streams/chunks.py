"""Chunks: the values of a stream, each with the execution that appended it."""

from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from perdure.core.ids import RunId, StepId


class ChunkState(StrEnum):
    """Whether a chunk counts: chunks of completed attempts do, those of abandoned ones do not."""

    PENDING = "pending"
    COMPLETED = "completed"
    ABANDONED = "abandoned"


class ChunkOrigin(NamedTuple):
    """One execution of a step. A queued attempt runs again when its lease expires: `claim` counts these."""

    step: StepId
    attempt: int = 1
    claim: int = 1


ROOT: Final = ChunkOrigin(StepId("root"))
"""The workflow itself. Its chunks commit with its entries, so they count as soon as they are there."""


ChunkKey = tuple[RunId, str, StepId, int, int, int]
"""Identity of a chunk, so that writing it again adds nothing: run, stream, origin and number."""


class NewChunk(msgspec.Struct, frozen=True, gc=False):
    """A chunk to append to a stream. `number` counts the chunks of its origin in the stream; the same number means the
    same chunk."""

    run_id: RunId
    name: str
    origin: ChunkOrigin
    number: int
    payload: bytes
    at_ms: int

    @property
    def key(self) -> ChunkKey:
        return self.run_id, self.name, *self.origin, self.number


class StoredChunk(msgspec.Struct, frozen=True, gc=False):
    """A stored chunk. Positions have no gaps and follow commit order."""

    position: int
    origin: ChunkOrigin
    payload: bytes
    at_ms: int
