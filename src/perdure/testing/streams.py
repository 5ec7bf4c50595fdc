"""What runs stream, for the explorer: followed live through every fault, and read once more at the end."""

import asyncio

from perdure.core.ids import RunId, StepId
from perdure.core.streams.chunks import ChunkState, StoredChunk
from perdure.core.streams.reading import Delivered, Reading
from perdure.store.bundle import Bundle
from perdure.store.store import Store

Streamed = dict[str, dict[StepId, list[bytes]]]
"""What counts of each stream: the payloads by the step that appended them, in order."""


class _Follower:
    """A live reader of one stream. `kept` is what it was shown, and was not told to forget."""

    def __init__(self) -> None:
        self.reading = Reading(0)
        self.seq = 0
        self.kept: set[int] = set()


class Audience:
    """Live readers of every stream in a store, who look whenever something was committed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._followers: dict[tuple[RunId, str], _Follower] = {}
        self._looking = asyncio.Lock()

    async def look(self, bundle: Bundle) -> None:
        """The bundle is durable: read on, as a client does."""
        async with self._looking:
            for chunk in bundle.chunks:
                self._followers.setdefault((chunk.run_id, chunk.name), _Follower())
            for (run_id, name), follower in self._followers.items():
                await self._read_on(run_id, name, follower)

    async def _read_on(self, run_id: RunId, name: str, follower: _Follower) -> None:
        reading, store = follower.reading, self._store
        length = (await store.streams(run_id))[name]
        chunks = await store.chunks(run_id, name, reading.position, length)
        entries = await store.entries(run_id, follower.seq)
        follower.seq += len(entries)
        reading.learn(entry.event for entry in entries)
        for news in reading.take(chunks):
            if not isinstance(news, Delivered):
                follower.kept.difference_update(*news.spans)
            elif news.state is not ChunkState.ABANDONED:
                follower.kept.add(news.chunk.position)

    async def agree(self) -> None:
        """When all runs are over: everybody has kept what counts, and nothing else."""
        for (run_id, name), follower in self._followers.items():
            counting = {chunk.position for chunk in await _counting(self._store, run_id, name)}
            if follower.kept != counting:
                raise AssertionError(
                    f"a reader of stream {name!r} of run {run_id} was left with {sorted(follower.kept)}, "
                    f"but {sorted(counting)} count"
                )


async def streamed(store: Store, run_id: RunId) -> Streamed:
    """What a run that is over has streamed."""
    found: Streamed = {}
    for name in await store.streams(run_id):
        for chunk in await _counting(store, run_id, name):
            steps = found.setdefault(name, {})
            steps.setdefault(chunk.origin.step, []).append(chunk.payload)
    return found


async def _counting(store: Store, run_id: RunId, name: str) -> list[StoredChunk]:
    """The chunks of a stream that count. Its positions must have no gap."""
    length = (await store.streams(run_id))[name]
    chunks = await store.chunks(run_id, name, 0, length + 1)
    positions = [chunk.position for chunk in chunks]
    if positions != list(range(length)):
        raise AssertionError(
            f"stream {name!r} of run {run_id} has {length} chunks, at positions {positions}"
        )
    reading = Reading(0, completed_only=True)
    reading.learn(entry.event for entry in await store.entries(run_id))
    return [news.chunk for news in reading.take(chunks) if isinstance(news, Delivered)]
