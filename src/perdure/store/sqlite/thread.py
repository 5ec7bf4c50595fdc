"""A thread that owns one SQLite connection and runs what it is given, in order."""

import asyncio
import socket
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, TypeVar

from perdure.store.sqlite.connection import Connection, Part

T = TypeVar("T")

_Job = tuple[Callable[[Connection], Any], asyncio.Future[Any], asyncio.AbstractEventLoop]


class ConnectionThread:
    """Opens the connection in its own thread, so that nothing blocks the event loop.

    While it has no job, the thread waits for groups to write, if there is a quick way for them: then it needs the
    interpreter's lock neither to hear of one nor to tell of its end.
    """

    def __init__(self, name: str, connect: Callable[[], Connection]) -> None:
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._connect = connect
        self._thread = Thread(target=self._work, name=name, daemon=True)
        self._connection: Connection | None = None
        self._unanswered = 0
        self._told: Callable[[bool], None] | None = None
        """Who is to hear of the group that is being written."""
        self._held: list[_Job | None] = []
        """What came while a group is being written, and must not overtake it: it may have to be written again."""
        self._bell: tuple[socket.socket, socket.socket] | None = None
        self._is_watching = False

    async def open(self) -> None:
        """Start the thread; raises what connecting raises."""
        self._thread.start()
        await self.run(lambda _: None)

    async def open_to_write(self) -> None:
        """The same, for a connection that groups are written on."""
        await self.open()
        loop = asyncio.get_running_loop()
        self._bell = ours, theirs = socket.socketpair()
        for end in self._bell:
            end.setblocking(False)
        try:
            loop.add_reader(ours, self._written)
        except NotImplementedError:
            descriptor = -1  # a loop that can't watch it: groups are jobs like others
        else:
            descriptor = theirs.fileno()
            self._is_watching = True
        await self.run(lambda connection: connection.begin_writing(descriptor))

    async def run(self, job: Callable[[Connection], T]) -> T:
        """Call `job` with the connection, and wait for what it returns."""
        return await self.submit(job)

    def submit(self, job: Callable[[Connection], T]) -> asyncio.Future[T]:
        """Queue `job`. Once begun it is finished, even if nobody waits for it any more."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._unanswered += 1
        self._put((job, future, loop))
        return future

    def _put(self, item: _Job | None) -> None:
        if self._told is not None:
            self._held.append(item)
            return
        self._jobs.put(item)
        if self._connection is not None:
            self._connection.want()

    def write(self, parts: Sequence[Part], told: Callable[[bool], None]) -> bool:
        """Commit a group in one go, if there is a way to and the thread has nothing else to do.

        `told` hears whether it came about: if not, nothing is changed.
        """
        connection = self.idle_connection
        if connection is None or not connection.submit(parts):
            return False
        self._unanswered += 1
        self._told = told
        return True

    @property
    def idle_connection(self) -> Connection | None:
        """The connection, for the event loop's own thread, while this thread has nothing to do."""
        return None if self._unanswered else self._connection

    async def close(self) -> None:
        """Finish what is queued, then close the connection."""
        if self._thread.is_alive():
            self._put(None)
            await asyncio.to_thread(self._thread.join)
        if self._bell is not None:
            if self._is_watching:
                asyncio.get_running_loop().remove_reader(self._bell[0])
            for end in self._bell:
                end.close()

    def _work(self) -> None:
        while (item := self._next()) is not None:
            job, future, loop = item
            result: Any = None
            failure: BaseException | None = None
            try:
                if self._connection is None:
                    self._connection = self._connect()
                result = job(self._connection)
            except BaseException as error:
                failure = error
            self._answer(loop, future, result, failure)
            # While it waits for the next job, this thread keeps nothing of the last one in memory.
            del item, job, future, result, failure
        if self._connection is not None:
            self._connection.close()

    def _next(self) -> _Job | None:
        """The next job; until there is one, groups are written."""
        connection = self._connection
        while connection is not None and connection.is_quick:
            try:
                return self._jobs.get_nowait()
            except Empty:
                connection.serve()
        return self._jobs.get()

    def _written(self) -> None:
        """A group is through: the socket tells."""
        connection, told, bell = self._connection, self._told, self._bell
        if bell is None or not bell[0].recv(1) or connection is None or told is None:
            return
        self._unanswered -= 1
        self._told = None
        try:
            told(connection.take())
        finally:
            held, self._held = self._held, []
            for item in held:
                self._put(item)

    def _answer(
        self,
        loop: asyncio.AbstractEventLoop,
        future: asyncio.Future[Any],
        result: Any,
        failure: BaseException | None,
    ) -> None:
        def settle() -> None:
            self._unanswered -= 1
            if future.done():
                return
            if failure is not None:
                future.set_exception(failure)
            else:
                future.set_result(result)

        try:
            loop.call_soon_threadsafe(settle)
        except RuntimeError:
            # The loop is gone, and with it whoever asked.
            return
