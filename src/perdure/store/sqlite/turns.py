"""Whose turn it is to use the connection that writes: everybody's, or one transaction's."""

import asyncio
from collections.abc import Callable
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
    """

    def __init__(self, writer: Worker) -> None:
        self.writer = writer
        self.guard = Guard()
        self._line = asyncio.Lock()
        self._is_closed = False

    @property
    def is_taken(self) -> bool:
        return self._line.locked()

    async def take(self) -> None:
        """Wait for the turn, and have it until it is given back."""
        await self._line.acquire()
        if self._is_closed:
            self._line.release()
            self._require_open()

    def give_back(self) -> None:
        self._line.release()

    async def run(self, job: Callable[[apsw.Connection], T]) -> T:
        """A job that is no transaction's, when no transaction has its turn."""
        self._require_open()
        if self.is_taken:
            async with self._line:
                self._require_open()
                return await self.writer.run(job)
        return await self.writer.run(job)

    async def close(self) -> None:
        """Let the transactions end, and begin no other."""
        async with self._line:
            self._is_closed = True

    def _require_open(self) -> None:
        if self._is_closed:
            raise StoreClosed("the store is closed", "use it before closing it")
