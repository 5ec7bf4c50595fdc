"""Followers of one run share one reader of its journal: a thousand of them cost one read and one encoding."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from typing import Final, NamedTuple

from perdure.api.encoding import json_bytes
from perdure.api.exchange import Exchange
from perdure.api.runs.pages import booked_events
from perdure.api.streaming import ServerEvent
from perdure.client.runs.rows import require_unparked
from perdure.client.served import status_of_run
from perdure.core.ids import RunId
from perdure.store.rows.records import Run

MOST_HELD: Final = 2000
"""Entries that are kept for followers that are behind; one that is further behind reads the store itself."""

MOST_BYTES: Final = 8 * 1024 * 1024

AHEAD: Final = 1000
"""How many entries before the end a new channel begins."""


class _Held(NamedTuple):
    offset: int
    data: bytes


class Channel:
    """The newest entries of one chain of runs, encoded, for its followers."""

    def __init__(self, exchange: Exchange, origin: RunId) -> None:
        self._exchange = exchange
        self._origin = origin
        self._held: deque[_Held] = deque()
        self._bytes = 0
        self._next = 0
        self._grown = asyncio.Event()
        self._ending: ServerEvent | Exception | None = None
        self._task: asyncio.Task[None] | None = None
        self.followers = 0

    @property
    def first(self) -> int:
        """The offset of the oldest entry that is held."""
        return self._held[0].offset if self._held else self._next

    @property
    def is_over(self) -> bool:
        return self._ending is not None

    async def start(self, chain: list[Run]) -> None:
        self._next = max(0, sum(run.seq for run in chain) - AHEAD)
        self._task = asyncio.create_task(self._read())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def follow(self, first: int) -> AsyncGenerator[ServerEvent, None]:
        """The entries from `first` on, then how the run ended. Older ones than those held come from the store."""
        at = first
        while True:
            grown = self._grown
            if at < self.first:
                chain = await self._chain()
                async for event in booked_events(self._exchange, chain, at, AHEAD):
                    yield ServerEvent("entry", json_bytes(event), str(event.offset))
                    at = event.offset + 1
                continue
            held = [each for each in self._held if each.offset >= at]
            for each in held:
                yield ServerEvent("entry", each.data, str(each.offset))
                at = each.offset + 1
            if held:
                continue
            if isinstance(self._ending, Exception):
                raise self._ending
            if self._ending is not None:
                yield self._ending
                return
            await grown.wait()

    async def _chain(self) -> list[Run]:
        store = self._exchange.store
        return await store.chain(self._origin) or await store.runs([self._origin])

    async def _read(self) -> None:
        try:
            await self._read_to_the_end()
        except Exception as error:
            self._ending = error
        self._wake()

    async def _read_to_the_end(self) -> None:
        host = self._exchange.host
        watchers, followed = host.dispatcher.watchers, self._origin
        grown = watchers.follow(followed)
        try:
            while True:
                host.follows(followed)
                grown.clear()
                chain = await self._chain()
                async for each in booked_events(self._exchange, chain, self._next, 1 << 60):
                    self._hold(_Held(each.offset, json_bytes(each)))
                last = chain[-1]
                if last.is_over:
                    status = {"status": status_of_run(last)}
                    self._ending = ServerEvent("end", json_bytes(status))
                    return
                await require_unparked(host.dispatcher.store, last)
                if last.run_id == followed:
                    await grown.wait()
                else:
                    watchers.unfollow(grown, followed)
                    followed = last.run_id
                    grown = watchers.follow(followed)
        finally:
            watchers.unfollow(grown, followed)

    def _hold(self, entry: _Held) -> None:
        self._held.append(entry)
        self._bytes += len(entry.data)
        self._next = entry.offset + 1
        while len(self._held) > MOST_HELD or (self._bytes > MOST_BYTES and len(self._held) > 1):
            self._bytes -= len(self._held.popleft().data)
        self._wake()

    def _wake(self) -> None:
        self._grown.set()
        self._grown = asyncio.Event()


class Channels:
    """The channels of the runs that callers follow. One per server."""

    def __init__(self) -> None:
        self._open: dict[RunId, Channel] = {}

    async def follow(self, exchange: Exchange, first: int) -> AsyncGenerator[ServerEvent, None]:
        """The entries of the run of the path from `first` on."""
        chain = await exchange.chain()
        origin = chain[0].run_id
        channel = self._open.get(origin)
        if channel is None or channel.is_over:
            channel = self._open[origin] = Channel(exchange, origin)
            await channel.start(chain)
        channel.followers += 1
        try:
            async for each in channel.follow(first):
                yield each
        finally:
            channel.followers -= 1
            if not channel.followers:
                channel.stop()
                if self._open.get(origin) is channel:
                    del self._open[origin]
