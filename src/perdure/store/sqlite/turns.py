"""Whose turn it is to use the connection that writes: everybody's, or one transaction's."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import apsw

from perdure.core.errors import StoreClosed
from perdure.store.sqlite.guard import Guard
from perdure.store.sqlite.inline import InlineConnection
from perdure.store.sqlite.thread import ConnectionThread

T = TypeVar("T")
Worker = ConnectionThread | InlineConnection


class Turns:
    """Jobs go to the connection one after the other. Between two jobs of a transaction no other may come, so while
    one has its turn the rest waits in line, transactions too.

    Between two transactions all jobs pass that wait by then, so that a job waits for one transaction at most, however
    many are in line; and a transaction comes before jobs that came later than its predecessor's end.
    """

    def __init__(self, writer: Worker) -> None:
        self.writer = writer
        self.guard = Guard()
        self.is_taken = False
        self._jobs: deque[asyncio.Future[None]] = deque()
        self._transactions: deque[asyncio.Future[None]] = deque()
        self._passing = 0
        """How many of the jobs in line come before the next transaction."""
        self._is_closed = False

    async def take(self) -> None:
        """Wait for the turn, as a transaction, and have it until `end`."""
        await self._wait(self._transactions, self.end)
        if self._is_closed:
            self.end()
            self._require_open()

    def end(self) -> None:
        """A transaction gives its turn back."""
        self._passing = len(self._jobs)
        self._call_next()

    async def run(self, job: Callable[[apsw.Connection], T]) -> T:
        """A job that is no transaction's, when no transaction has its turn."""
        self._require_open()
        if not self.is_taken:
            return await self.writer.run(job)
        async with self.job():
            self._require_open()
            return await self.writer.run(job)

    @asynccontextmanager
    async def job(self) -> AsyncIterator[None]:
        """A turn for one job."""
        await self._wait(self._jobs, self._end_job)
        try:
            yield
        finally:
            self._end_job()

    async def close(self) -> None:
        """Let the transactions end, and begin no other."""
        async with self.job():
            self._is_closed = True

    def _end_job(self) -> None:
        self._passing = max(0, self._passing - 1)
        self._call_next()

    async def _wait(self, line: deque[asyncio.Future[None]], give_back: Callable[[], None]) -> None:
        if not self.is_taken:
            self.is_taken = True
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line.append(turn)
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                give_back()
            elif turn in line:
                line.remove(turn)
            raise

    def _call_next(self) -> None:
        lines = (self._transactions, self._jobs)
        for line in lines[::-1] if self._passing else lines:
            while line:
                turn = line.popleft()
                if not turn.done():
                    turn.set_result(None)
                    return
        self.is_taken = False

    def _require_open(self) -> None:
        if self._is_closed:
            raise StoreClosed("the store is closed", "use it before closing it")
