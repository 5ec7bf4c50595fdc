"""Reading a run's streams: from any offset, live, in any process."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing
from itertools import chain
from typing import Any, Final, Generic, TypeVar

import msgspec

from perdure.authoring.stream import require_stream_name
from perdure.client.stored import require_unparked
from perdure.core.errors import InputError, NotDecodable
from perdure.core.ids import RunId, StepId
from perdure.core.journal.state import Status
from perdure.core.replay.identity import next_run_id
from perdure.core.streams.chunks import ChunkState, StoredChunk
from perdure.core.streams.reading import Reading, Voided
from perdure.host.hosting import POLL_MS, Hosting
from perdure.store.records import Run

RowOf = Callable[[RunId | None], Awaitable[Run]]
"""The row of a run; of the one that is read, if none is named."""

T_co = TypeVar("T_co", covariant=True)

LONGEST_POLL_S: Final = POLL_MS / 1000
FIRST_POLL_S: Final = 0.02
"""How soon a reader looks again after it found something, if nobody wakes it: another process may be at work."""

PAGE: Final = 64
"""Chunks that are read at a time."""

ENTRIES: Final = 500
"""Entries of the journal that are read at a time."""


class Chunk(msgspec.Struct, Generic[T_co], frozen=True):
    """A value of a stream. `offset` is its place there; `step` and `attempt` say who appended it.

    What a workflow appends itself has the step `root`. `state` says whether it counts, as far as was known when it
    was read. A `pending` one counts unless an `Abandoned` that has its offset follows.
    """

    offset: int
    value: T_co
    step: StepId
    attempt: int
    state: ChunkState
    at_ms: int


class Abandoned(msgspec.Struct, frozen=True):
    """Chunks that were pending when they were read do not count: their attempt was abandoned since.

    `spans` are ranges of offsets; `offset in abandoned` asks for one, and `offsets` are all of them.
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
    """Reads one stream, by polling the store; whoever appends in this process wakes it at once.

    Runs that continue each other are read as if they were one.
    """

    def __init__(self, hosting: Hosting, row: RowOf, name: str, of: Any) -> None:
        self._host = hosting.host
        self._row = row
        self._name = require_stream_name(name)
        self._of = of

    async def read(
        self, start: int, *, completed_only: bool
    ) -> AsyncGenerator[Chunk[Any] | Abandoned, None]:
        """Every chunk from `start` on, and what becomes of those that were read, to the end of the last run."""
        store = self._host.store
        run_id = (await self._row(None)).origin
        passed = 0
        """How many chunks the runs before have."""
        while True:
            reading = Reading(max(0, start - passed), completed_only=completed_only)
            async with aclosing(self._read(run_id, reading)) as items:
                async for item in items:
                    yield _shifted(item, passed) if passed else item
            if (await self._row(run_id)).status is not Status.CONTINUED:
                return
            passed += (await store.streams(run_id)).get(self._name, 0)
            run_id = next_run_id(run_id)

    async def _read(
        self, run_id: RunId, reading: Reading
    ) -> AsyncGenerator[Chunk[Any] | Abandoned, None]:
        """The stream of one run, to its end."""
        host, store, start = self._host, self._host.store, reading.position
        if start and not reading.completed_only:
            reading.recall(await store.spans(run_id, self._name, start))
        topics = run_id, (run_id, self._name)
        grown = host.watchers.follow(*topics)
        seq, delay_s = 0, FIRST_POLL_S
        try:
            while True:
                grown.clear()
                # The end is looked for before the chunks are: then none that counts is missing at the end.
                was_over, position = reading.attempts.is_over, reading.position
                chunks = await store.chunks(run_id, self._name, position, PAGE)
                seq = await self._learn(run_id, reading, seq)
                for news in reading.take(chunks):
                    yield Abandoned(*news) if isinstance(news, Voided) else self._chunk(*news)
                if was_over and len(chunks) < PAGE:
                    return
                has_moved = reading.position > position
                if reading.attempts.is_over or (has_moved and len(chunks) == PAGE):
                    continue
                if delay_s == LONGEST_POLL_S:
                    await require_unparked(store, await self._row(run_id))
                delay_s = FIRST_POLL_S if has_moved else min(2 * delay_s, LONGEST_POLL_S)
                await _wait(grown, delay_s)
        finally:
            host.watchers.unfollow(grown, *topics)

    async def _learn(self, run_id: RunId, reading: Reading, seq: int) -> int:
        """Take in what the journal has from entry `seq` on; returns where it ends."""
        while True:
            end = seq + ENTRIES
            entries = await self._host.store.entries(run_id, seq, end)
            reading.learn(entry.event for entry in entries)
            seq += len(entries)
            if seq < end:
                return seq

    def _chunk(self, chunk: StoredChunk, state: ChunkState) -> Chunk[Any]:
        try:
            value = self._host.codec.decode(chunk.payload, self._of)
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


async def _wait(grown: asyncio.Event, limit_s: float) -> None:
    try:
        async with asyncio.timeout(limit_s):
            await grown.wait()
    except TimeoutError:
        return


def require_offset(start: object) -> int:
    """The offset, if it can be one."""
    if type(start) is not int or not 0 <= start < 1 << 63:
        raise InputError(f"{start!r} can't be an offset", "pass a whole number, 0 or more")
    return start
