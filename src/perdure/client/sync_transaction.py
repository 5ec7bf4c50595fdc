"""A transaction for code that is not async: a block in its thread, a task of the engine's loop beside it."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

from perdure.client.engine import Engine
from perdure.core.transactions import Row, Transaction
from perdure.host.joining import Joining, innermost

T = TypeVar("T")


class Waiting(Protocol):
    """Lets the engine's loop do something, and waits for it."""

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T: ...


class SyncTransaction:
    """A `Transaction` whose methods are not awaited."""

    def __init__(self, engine: Waiting, transaction: Transaction) -> None:
        self._engine = engine
        self._transaction = transaction

    def execute(self, sql: str, *args: Any) -> int:
        return self._engine.wait_for(self._transaction.execute(sql, *args))

    def fetch(self, sql: str, *args: Any) -> list[Row]:
        return self._engine.wait_for(self._transaction.fetch(sql, *args))

    def fetch_one(self, sql: str, *args: Any) -> Row | None:
        return self._engine.wait_for(self._transaction.fetch_one(sql, *args))

    def fetch_value(self, sql: str, *args: Any) -> Any:
        return self._engine.wait_for(self._transaction.fetch_value(sql, *args))


class _RollBack(Exception):
    """The block raised."""


class BlockTask:
    """The task in which the transaction of a block lives, because a time limit interrupts a task."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._life: asyncio.Task[None] | None = None
        self._end: asyncio.Future[None] | None = None

    async def begin(self) -> Joining:
        """The transaction, which the thread of the block is to be in."""
        loop = asyncio.get_running_loop()
        self._end = loop.create_future()
        begun: asyncio.Future[Joining] = loop.create_future()
        self._life = loop.create_task(self._live(begun, self._end))
        either: list[asyncio.Future[Any]] = [begun, self._life]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if self._life.done():
            self._life.result()
        return begun.result()

    async def _live(self, begun: asyncio.Future[Joining], end: asyncio.Future[None]) -> None:
        async with self._engine.transaction():
            joined = innermost()
            if joined is not None:
                begun.set_result(joined)
            await end

    async def end(self, *, is_good: bool) -> None:
        """Commit, or roll back. Raises what the commit raises, or that the time was up."""
        if self._life is None or self._end is None:
            return
        if not self._end.done():
            if is_good:
                self._end.set_result(None)
            else:
                self._end.set_exception(_RollBack())
        try:
            await self._life
        except _RollBack:
            return
