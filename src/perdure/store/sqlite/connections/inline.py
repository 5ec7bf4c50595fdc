"""A SQLite connection without a thread, for stores in memory, which never wait for a disk."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from perdure.store.sqlite.connections.bulk_statements import GroupStatement
from perdure.store.sqlite.connections.connection import Connection

T = TypeVar("T")


class InlineConnection:
    """Does what `ConnectionThread` does, at once and in the event loop's own thread.

    So the order of events depends on the program alone, and a test can repeat a schedule.
    """

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._connect = connect
        self.idle_connection: Connection | None = None
        """The connection, which is always idle between two calls."""

    async def open(self) -> None:
        """Connect; raises what connecting raises."""
        await self.run(lambda _: None)

    async def open_to_write(self) -> None:
        """Connect, and prepare the connection for writing groups."""
        await self.run(Connection.begin_writing)

    async def run(self, job: Callable[[Connection], T]) -> T:
        """Call `job` with the connection, without yielding to other tasks."""
        return await self.submit(job)

    def submit(self, job: Callable[[Connection], T]) -> asyncio.Future[T]:
        """Call `job` with the connection; the returned future is done already."""
        outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        try:
            if self.idle_connection is None:
                self.idle_connection = self._connect()
            outcome.set_result(job(self.idle_connection))
        except Exception as error:
            outcome.set_exception(error)
        return outcome

    def write(
        self, statements: Sequence[GroupStatement], on_written: Callable[[bool], None]
    ) -> bool:
        """Commit a group natively. False if there is no native writer.

        Calls `on_written` before it returns, with whether the group was committed.
        """
        connection = self.idle_connection
        if connection is None or not connection.is_native:
            return False
        on_written(connection.write(statements))
        return True

    async def close(self) -> None:
        """Close the connection."""
        if self.idle_connection is not None:
            self.idle_connection.close()
