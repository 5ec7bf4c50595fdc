"""A SQLite connection without a thread: for stores in memory, where nothing waits for a disk."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from perdure.store.sqlite.connection import Connection, Part

T = TypeVar("T")


class InlineConnection:
    """Does what `ConnectionThread` does, in the event loop's own thread and at once.

    So the order in which things happen depends on the program alone, and a test that finds a schedule
    can run it again.
    """

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._connect = connect
        self._connection: Connection | None = None

    async def open(self) -> None:
        """Connect; raises what connecting raises."""
        await self.run(lambda _: None)

    async def open_to_write(self) -> None:
        """The same, for a connection that groups are written on."""
        await self.run(Connection.begin_writing)

    async def run(self, job: Callable[[Connection], T]) -> T:
        """Call `job` with the connection. Gives no other task a turn."""
        return await self.submit(job)

    def submit(self, job: Callable[[Connection], T]) -> asyncio.Future[T]:
        """Call `job` with the connection; the answer is there already."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        try:
            if self._connection is None:
                self._connection = self._connect()
            answer.set_result(job(self._connection))
        except Exception as error:
            answer.set_exception(error)
        return answer

    def write(self, parts: Sequence[Part], told: Callable[[bool], None]) -> bool:
        """Commit a group in one go, if there is a way to. `told` hears at once whether it came about."""
        connection = self._connection
        if connection is None or not connection.is_quick:
            return False
        told(connection.write(parts))
        return True

    @property
    def idle_connection(self) -> Connection | None:
        """The connection: between two calls it never has anything to do."""
        return self._connection

    async def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
