"""Checks of streams for the explorer: live readers follow them through every fault, and must agree with the end."""

import asyncio

from perdure.core.ids import RunId, StepId
from perdure.core.streams.chunks import ChunkState, StoredChunk
from perdure.core.streams.reading import DeliveredChunk, StreamReading
from perdure.store.commit.bundle import Bundle
from perdure.store.store import Store

Streamed = dict[str, dict[StepId, list[bytes]]]
"""The completed chunks of each stream: the payloads in order, by the step that appended them."""


class _Follower:
    """A live reader of one stream. `kept` are the offsets that it received and that were not abandoned since."""

    def __init__(self) -> None:
        self.reading = StreamReading(0)
        self.seq = 0
        self.kept: set[int] = set()


class StreamFollowers:
    """One live reader for each stream of a store. All of them read after each commit."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._followers: dict[tuple[RunId, str], _Follower] = {}
        self._reading = asyncio.Lock()

    async def read_new(self, bundle: Bundle) -> None:
        """Follow the streams that the durable bundle appends to, and read all streams on, as a client does."""
        async with self._reading:
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
            if not isinstance(news, DeliveredChunk):
                follower.kept.difference_update(*news.spans)
            elif news.state is not ChunkState.ABANDONED:
                follower.kept.add(news.chunk.position)

    async def check_kept(self) -> None:
        """When all runs are over, check that each reader has kept the completed chunks and no others."""
        for (run_id, name), follower in self._followers.items():
            completed = {chunk.position for chunk in await _completed(self._store, run_id, name)}
            if follower.kept != completed:
                raise AssertionError(
                    f"a reader of stream {name!r} of run {run_id} was left with {sorted(follower.kept)}, "
                    f"but {sorted(completed)} are completed"
                )


async def streamed(store: Store, run_id: RunId) -> Streamed:
    """The completed chunks of a run that is over."""
    found: Streamed = {}
    for name in await store.streams(run_id):
        for chunk in await _completed(store, run_id, name):
            steps = found.setdefault(name, {})
            steps.setdefault(chunk.origin.step, []).append(chunk.payload)
    return found


async def _completed(store: Store, run_id: RunId, name: str) -> list[StoredChunk]:
    """The completed chunks of a stream. Raises if its positions have a gap."""
    length = (await store.streams(run_id))[name]
    chunks = await store.chunks(run_id, name, 0, length + 1)
    positions = [chunk.position for chunk in chunks]
    if positions != list(range(length)):
        raise AssertionError(
            f"stream {name!r} of run {run_id} has {length} chunks, at positions {positions}"
        )
    reading = StreamReading(0, completed_only=True)
    reading.learn(entry.event for entry in await store.entries(run_id))
    return [news.chunk for news in reading.take(chunks) if isinstance(news, DeliveredChunk)]
