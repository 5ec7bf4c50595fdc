"""The streams of a run: their names, pages of chunks, and a stream of server-sent events."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import msgspec
from starlette.responses import Response

from perdure.api.encoding import json_bytes
from perdure.api.exchange import Exchange
from perdure.api.runs.history import resumed_at
from perdure.api.streaming import ServerEvent, event_stream
from perdure.client.runs.streams import Abandoned
from perdure.client.served import status_of_run
from perdure.core.ids import StepId
from perdure.core.streams.chunks import StoredChunk


class StreamOfRun(msgspec.Struct, frozen=True):
    """A stream and its number of chunks."""

    name: str
    chunks: int


class StreamsOfRun(msgspec.Struct, frozen=True):
    """The streams of a chain of runs."""

    streams: list[StreamOfRun]


class ChunksQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which chunks: from offset `start` on."""

    start: int = 0
    limit: int = 200

    def __post_init__(self) -> None:
        if not 1 <= self.limit <= 1000:
            raise ValueError(f"limit is {self.limit}: pass a number from 1 to 1000")
        if not 0 <= self.start <= 2**53:
            raise ValueError("start is out of range: pass the offset of a chunk")


class ShownChunk(msgspec.Struct, frozen=True):
    """A chunk at its offset, and the attempt that appended it."""

    offset: int
    value: Any
    step: StepId
    attempt: int
    at_ms: int


class WithdrawnChunks(msgspec.Struct, frozen=True):
    """Ranges of offsets, from the first to before the second: their attempt was abandoned."""

    step: StepId
    attempt: int
    spans: list[tuple[int, int]]


class ChunkPage(msgspec.Struct, frozen=True):
    """Chunks, those of abandoned attempts included. `next` is the `start` of the next page."""

    chunks: list[ShownChunk]
    next: int | None


async def streams(exchange: Exchange) -> StreamsOfRun:
    counts: dict[str, int] = {}
    for run in await exchange.chain():
        for name, count in (await exchange.store.streams(run.run_id)).items():
            counts[name] = counts.get(name, 0) + count
    return StreamsOfRun([StreamOfRun(name, count) for name, count in sorted(counts.items())])


async def chunks(exchange: Exchange) -> ChunkPage | Response:
    query: ChunksQuery = exchange.query
    name = exchange.part("name")
    if exchange.wants_events:
        await exchange.run()
        return event_stream(exchange, _followed(exchange, name, resumed_at(exchange, query.start)))
    found: list[ShownChunk] = []
    passed = 0
    for run in await exchange.chain():
        first, room = max(0, query.start - passed), query.limit - len(found)
        held = (await exchange.store.streams(run.run_id)).get(name, 0)
        if first < held and room:
            stored = await exchange.store.chunks(run.run_id, name, first, room)
            found += [_shown(exchange, chunk, passed) for chunk in stored]
        passed += held
    after = found[-1].offset + 1 if found else query.start
    return ChunkPage(found, after if found and after < passed else None)


def _shown(exchange: Exchange, chunk: StoredChunk, before: int) -> ShownChunk:
    step, attempt, _ = chunk.origin
    value = exchange.codec.decode(chunk.payload, object)
    return ShownChunk(before + chunk.position, value, step, attempt, chunk.at_ms)


async def _followed(exchange: Exchange, name: str, start: int) -> AsyncGenerator[ServerEvent, None]:
    handle = await exchange.handle()
    async with aclosing(handle.stream(name, start=start)) as followed:
        async for each in followed:
            if isinstance(each, Abandoned):
                spans = [(span.start, span.stop) for span in each.spans]
                withdrawn = WithdrawnChunks(each.step, each.attempt, spans)
                yield ServerEvent("abandoned", json_bytes(withdrawn))
            else:
                shown = ShownChunk(each.offset, each.value, each.step, each.attempt, each.at_ms)
                yield ServerEvent("chunk", json_bytes(shown), str(each.offset))
    last = (await exchange.chain())[-1]
    yield ServerEvent("end", json_bytes({"status": status_of_run(last)}))
