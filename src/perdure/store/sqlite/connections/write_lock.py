"""Who may use the writing connection: single jobs in their order, or one user transaction alone."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import apsw

from perdure.core.errors import StoreClosed
from perdure.store.sqlite.connections.inline import InlineConnection
from perdure.store.sqlite.connections.statement_guard import StatementGuard
from perdure.store.sqlite.connections.thread import ConnectionThread

T = TypeVar("T")
ConnectionWorker = ConnectionThread | InlineConnection


class WriteLock:
    """A transaction holds the lock from its first statement to its end; other jobs and transactions wait meanwhile.

    Fairness: when a transaction ends, all jobs that wait by then run before the next transaction, so that a job waits
    for at most one transaction. Jobs that come after that end run after the next transaction.
    """

    def __init__(self, writer: ConnectionWorker) -> None:
        self.writer = writer
        self.guard = StatementGuard()
        self.is_held = False
        self._jobs: deque[asyncio.Future[None]] = deque()
        self._transactions: deque[asyncio.Future[None]] = deque()
        self._jobs_first = 0
        """How many of the waiting jobs run before the next transaction."""
        self._is_closed = False

    async def acquire(self) -> None:
        """Wait for the lock, as a transaction, and hold it until `release`."""
        await self._wait(self._transactions, self.release)
        if self._is_closed:
            self.release()
            self._require_open()

    def release(self) -> None:
        """End a transaction's hold."""
        self._jobs_first = len(self._jobs)
        self._grant_next()

    async def run(self, job: Callable[[apsw.Connection], T]) -> T:
        """Run a job that belongs to no transaction, when no transaction holds the lock."""
        self._require_open()
        if not self.is_held:
            return await self.writer.run(job)
        async with self.job():
            self._require_open()
            return await self.writer.run(job)

    @asynccontextmanager
    async def job(self) -> AsyncIterator[None]:
        """Hold the lock for one job."""
        await self._wait(self._jobs, self._end_job)
        try:
            yield
        finally:
            self._end_job()

    async def close(self) -> None:
        """Wait until the current transaction ends; no other begins."""
        async with self.job():
            self._is_closed = True

    def _end_job(self) -> None:
        self._jobs_first = max(0, self._jobs_first - 1)
        self._grant_next()

    async def _wait(self, line: deque[asyncio.Future[None]], release: Callable[[], None]) -> None:
        if not self.is_held:
            self.is_held = True
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line.append(granted)
        try:
            await granted
        except BaseException:
            if granted.done() and not granted.cancelled():
                release()
            elif granted in line:
                line.remove(granted)
            raise

    def _grant_next(self) -> None:
        lines = (self._transactions, self._jobs)
        for line in lines[::-1] if self._jobs_first else lines:
            while line:
                granted = line.popleft()
                if not granted.done():
                    granted.set_result(None)
                    return
        self.is_held = False

    def _require_open(self) -> None:
        if self._is_closed:
            raise StoreClosed("the store is closed", "use it before closing it")
