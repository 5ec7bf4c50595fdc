"""Artifacts for sync code: `engine.artifacts` of a `SyncEngine`."""

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

from perdure.client.artifacts import EngineArtifacts
from perdure.core.journal.events import ArtifactRef
from perdure.host.artifacts.sweep import Swept

if TYPE_CHECKING:
    from perdure.client.sync import SyncEngine


class SyncArtifacts:
    """Each method is the sync form of the same method of `EngineArtifacts`."""

    def __init__(self, engine: "SyncEngine", artifacts: EngineArtifacts) -> None:
        self._engine = engine
        self._artifacts = artifacts

    def get(self, ref: ArtifactRef) -> bytes:
        return self._engine.wait_for(self._artifacts.get(ref))

    def stream(self, ref: ArtifactRef, first: int = 0, end: int | None = None) -> Iterator[bytes]:
        parts = self._artifacts.stream(ref, first, end)
        while (part := self._engine.wait_for(_next_part(parts))) is not None:
            yield part

    def erase(self, run_id: str) -> int:
        return self._engine.wait_for(self._artifacts.erase(run_id))

    def sweep(self) -> Swept:
        return self._engine.wait_for(self._artifacts.sweep())


async def _next_part(parts: AsyncIterator[bytes]) -> bytes | None:
    return await anext(parts, None)
