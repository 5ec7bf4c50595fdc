"""A SQLite connection without a thread: for stores in memory, where nothing waits for a disk."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

import apsw

T = TypeVar("T")


class InlineConnection:
    """Does what `ConnectionThread` does, in the event loop's own thread and at once.

    So the order in which things happen depends on the program alone, and a test that finds a schedule
    can run it again.
    """

    def __init__(self, connect: Callable[[], apsw.Connection]) -> None:
        self._connect = connect
        self._connection: apsw.Connection | None = None

    async def open(self) -> None:
        """Connect; raises what connecting raises."""
        await self.run(lambda _: None)

    async def run(self, job: Callable[[apsw.Connection], T]) -> T:
        """Call `job` with the connection. Gives no other task a turn."""
        return await self.submit(job)

    def submit(self, job: Callable[[apsw.Connection], T]) -> asyncio.Future[T]:
        """Call `job` with the connection; the answer is there already."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        try:
            if self._connection is None:
                self._connection = self._connect()
            answer.set_result(job(self._connection))
        except Exception as error:
            answer.set_exception(error)
        return answer

    @property
    def idle_connection(self) -> apsw.Connection | None:
        """The connection: between two calls it never has anything to do."""
        return self._connection

    async def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
