"""Transactions for sync code: the block runs in the caller's thread, the transaction in a task of the engine's loop."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

from perdure.client.engine import Engine
from perdure.core.transactions import Row, Transaction
from perdure.host.transactions.joining import JoinedWrites, innermost

T = TypeVar("T")


class LoopRunner(Protocol):
    """Runs a coroutine in the engine's loop and waits for its result."""

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T: ...


class SyncTransaction:
    """A `Transaction` with sync methods."""

    def __init__(self, engine: LoopRunner, transaction: Transaction) -> None:
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


class TransactionTask:
    """Holds the transaction of a sync block in a task of its own, because the time limit interrupts a task."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._task: asyncio.Task[None] | None = None
        self._end: asyncio.Future[None] | None = None

    async def begin(self) -> JoinedWrites:
        """Begin the transaction, for the block's thread to join."""
        loop = asyncio.get_running_loop()
        self._end = loop.create_future()
        begun: asyncio.Future[JoinedWrites] = loop.create_future()
        self._task = loop.create_task(self._hold(begun, self._end))
        either: list[asyncio.Future[Any]] = [begun, self._task]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if self._task.done():
            self._task.result()
        return begun.result()

    async def _hold(self, begun: asyncio.Future[JoinedWrites], end: asyncio.Future[None]) -> None:
        async with self._engine.transaction():
            joined = innermost()
            if joined is not None:
                begun.set_result(joined)
            await end

    async def end(self, *, commit: bool) -> None:
        """Commit or roll back. Raises the error of the commit, or `TimeoutError` if the time limit has passed."""
        if self._task is None or self._end is None:
            return
        if not self._end.done():
            if commit:
                self._end.set_result(None)
            else:
                self._end.set_exception(_RollBack())
        try:
            await self._task
        except _RollBack:
            return
