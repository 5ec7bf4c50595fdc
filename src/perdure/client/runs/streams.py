"""Reads streams of runs: from any offset, live, in any process."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing
from itertools import chain
from typing import Any, Final, Generic, TypeVar

import msgspec

from perdure.authoring.stream import require_stream_name
from perdure.client.runs.rows import require_unparked
from perdure.core.errors import InputError, NotDecodable
from perdure.core.ids import RunId, StepId
from perdure.core.journal.state import Status
from perdure.core.replay.identity import next_run_id
from perdure.core.streams.chunks import ChunkState, StoredChunk
from perdure.core.streams.reading import StreamReading, VoidedAttempt
from perdure.host.host import Host
from perdure.store.rows.records import Run

ReadRow = Callable[[RunId | None], Awaitable[Run]]
"""Reads the row of a run; without an id, of the run whose stream is read."""

ValueT_co = TypeVar("ValueT_co", covariant=True)

CHUNKS_PER_READ: Final = 64

JOURNAL_ENTRIES_PER_READ: Final = 500


class Chunk(msgspec.Struct, Generic[ValueT_co], frozen=True):
    """A value of a stream, at `offset`. The attempt `attempt` of `step` appended it.

    Chunks that a workflow itself appends have the step `root`. `state` is the chunk's state at the time of the read. A
    `pending` chunk is valid unless an `Abandoned` with its offset follows.
    """

    offset: int
    value: ValueT_co
    step: StepId
    attempt: int
    state: ChunkState
    at_ms: int


class Abandoned(msgspec.Struct, frozen=True):
    """Withdraws chunks that were pending when they were read: their attempt was abandoned since.

    `spans` are ranges of offsets, `offsets` are all offsets, and `offset in abandoned` tests one.
    """

    step: StepId
    attempt: int
    spans: tuple[range, ...]

    def __contains__(self, offset: int) -> bool:
        return any(offset in span for span in self.spans)

    @property
    def offsets(self) -> Iterator[int]:
        return chain.from_iterable(self.spans)


class StreamReader:
    """Reads one stream. An append wakes it: at once in this process, and by a hint from another.

    Reads runs that continue each other as one run.
    """

    def __init__(self, host: Host, read_row: ReadRow, name: str, of: Any) -> None:
        self._host, self._dispatcher = host, host.dispatcher
        self._read_row = read_row
        self._name = require_stream_name(name)
        self._of = of

    async def read(
        self, start: int, *, completed_only: bool
    ) -> AsyncGenerator[Chunk[Any] | Abandoned, None]:
        """Yield every chunk from `start` on, and `Abandoned` for chunks already yielded, to the end of the last run."""
        store = self._dispatcher.store
        run_id = (await self._read_row(None)).origin
        passed = 0
        """The number of chunks in the runs before this one."""
        while True:
            reading = StreamReading(max(0, start - passed), completed_only=completed_only)
            async with aclosing(self._read(run_id, reading)) as items:
                async for item in items:
                    yield _shifted(item, passed) if passed else item
            if (await self._read_row(run_id)).status is not Status.CONTINUED:
                return
            passed += (await store.streams(run_id)).get(self._name, 0)
            run_id = next_run_id(run_id)

    async def _read(
        self, run_id: RunId, reading: StreamReading
    ) -> AsyncGenerator[Chunk[Any] | Abandoned, None]:
        """Yield the stream of one run, to the end of the run."""
        dispatcher, store, start = self._dispatcher, self._dispatcher.store, reading.position
        if start and not reading.completed_only:
            reading.recall(await store.spans(run_id, self._name, start))
        topics = run_id, (run_id, self._name)
        grown = dispatcher.watchers.follow(*topics)
        self._host.follows((run_id, self._name))
        seq = 0
        try:
            while True:
                grown.clear()
                # Check for the end before reading chunks: then no chunk is missing at the end.
                was_over, position = reading.attempts.is_over, reading.position
                chunks = await store.chunks(run_id, self._name, position, CHUNKS_PER_READ)
                seq = await self._read_journal(run_id, reading, seq)
                for read in reading.take(chunks):
                    yield (
                        Abandoned(*read) if isinstance(read, VoidedAttempt) else self._chunk(*read)
                    )
                if was_over and len(chunks) < CHUNKS_PER_READ:
                    return
                has_moved = reading.position > position
                if reading.attempts.is_over or (has_moved and len(chunks) == CHUNKS_PER_READ):
                    continue
                if not has_moved:
                    await require_unparked(store, await self._read_row(run_id))
                await grown.wait()
        finally:
            dispatcher.watchers.unfollow(grown, *topics)

    async def _read_journal(self, run_id: RunId, reading: StreamReading, seq: int) -> int:
        """Pass the entries from `seq` on to `reading`; returns the next `seq`."""
        while True:
            end = seq + JOURNAL_ENTRIES_PER_READ
            entries = await self._dispatcher.store.entries(run_id, seq, end)
            reading.learn(entry.event for entry in entries)
            seq += len(entries)
            if seq < end:
                return seq

    def _chunk(self, chunk: StoredChunk, state: ChunkState) -> Chunk[Any]:
        try:
            value = self._dispatcher.codec.decode(chunk.payload, self._of)
        except NotDecodable as error:
            what = f"chunk {chunk.position} of stream {self._name!r}: {error.what}"
            raise NotDecodable(what, error.remedy) from None
        step, attempt, _ = chunk.origin
        return Chunk(chunk.position, value, step, attempt, state, chunk.at_ms)


def _shifted(item: Chunk[Any] | Abandoned, by: int) -> Chunk[Any] | Abandoned:
    if isinstance(item, Chunk):
        return msgspec.structs.replace(item, offset=item.offset + by)
    spans = tuple(range(span.start + by, span.stop + by) for span in item.spans)
    return msgspec.structs.replace(item, spans=spans)


def require_offset(start: object) -> int:
    if type(start) is not int or not 0 <= start < 1 << 63:
        raise InputError(f"{start!r} can't be an offset", "pass a whole number, 0 or more")
    return start
