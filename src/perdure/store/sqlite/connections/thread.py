"""A thread that owns one SQLite connection and runs jobs on it, in order."""

import asyncio
import socket
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, TypeVar

from perdure.store.sqlite.connections.bulk_statements import GroupStatement
from perdure.store.sqlite.connections.connection import Connection

T = TypeVar("T")

_Job = tuple[Callable[[Connection], Any], asyncio.Future[Any], asyncio.AbstractEventLoop]


class ConnectionThread:
    """Opens the connection in its own thread, so that nothing blocks the event loop.

    While it has no job, the thread serves the native writer, if there is one: it then receives groups and reports their
    end without the interpreter's lock.
    """

    def __init__(self, name: str, connect: Callable[[], Connection]) -> None:
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._connect = connect
        self._thread = Thread(target=self._work, name=name, daemon=True)
        self._connection: Connection | None = None
        self.idle_connection: Connection | None = None
        """The connection, for use in the event loop's own thread, while this thread is idle."""
        self._unfinished = 0
        self._on_written: Callable[[bool], None] | None = None
        """The callback of the group that is being written."""
        self._held: list[_Job | None] = []
        """Jobs submitted while a group is being written. They must not overtake it: it may have to be written again."""
        self._sockets: tuple[socket.socket, socket.socket] | None = None
        self._is_watching = False

    async def open(self) -> None:
        """Start the thread; raises what connecting raises."""
        self._thread.start()
        await self.run(lambda _: None)

    async def open_to_write(self) -> None:
        """Start the thread, with a connection that groups are written on."""
        await self.open()
        loop = asyncio.get_running_loop()
        self._sockets = loop_end, thread_end = socket.socketpair()
        for end in self._sockets:
            end.setblocking(False)
        try:
            loop.add_reader(loop_end, self._group_written)
        except NotImplementedError:
            descriptor = -1  # the loop can't watch sockets: groups are written as jobs
        else:
            descriptor = thread_end.fileno()
            self._is_watching = True
        await self.run(lambda connection: connection.begin_writing(descriptor))

    async def run(self, job: Callable[[Connection], T]) -> T:
        """Call `job` with the connection, and wait for what it returns."""
        return await self.submit(job)

    def submit(self, job: Callable[[Connection], T]) -> asyncio.Future[T]:
        """Queue `job`. Once started it is finished, even if the awaiter is cancelled."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._begin()
        self._put((job, future, loop))
        return future

    def _put(self, item: _Job | None) -> None:
        if self._on_written is not None:
            self._held.append(item)
            return
        self._jobs.put(item)
        if self._connection is not None:
            self._connection.stop_serving()

    def write(
        self, statements: Sequence[GroupStatement], on_written: Callable[[bool], None]
    ) -> bool:
        """Submit a group to the native writer. False if there is none, or the thread is busy.

        Calls `on_written` with whether the group was committed; if not, nothing has changed.
        """
        connection = self.idle_connection
        if connection is None or not connection.submit(statements):
            return False
        self._begin()
        self._on_written = on_written
        return True

    def _begin(self) -> None:
        self._unfinished += 1
        self.idle_connection = None

    def _end(self) -> None:
        self._unfinished -= 1
        if not self._unfinished:
            self.idle_connection = self._connection

    async def close(self) -> None:
        """Finish what is queued, then close the connection."""
        if self._thread.is_alive():
            self._put(None)
            await asyncio.to_thread(self._thread.join)
        if self._sockets is not None:
            if self._is_watching:
                asyncio.get_running_loop().remove_reader(self._sockets[0])
            for end in self._sockets:
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
            self._settle(loop, future, result, failure)
            # Release the objects of this job before waiting for the next one.
            del item, job, future, result, failure
        if self._connection is not None:
            self._connection.close()

    def _next(self) -> _Job | None:
        """The next job; serves the native writer until there is one."""
        connection = self._connection
        while connection is not None and connection.is_native:
            try:
                return self._jobs.get_nowait()
            except Empty:
                connection.serve()
        return self._jobs.get()

    def _group_written(self) -> None:
        """The native writer reported the end of a group on the socket."""
        connection, on_written, sockets = self._connection, self._on_written, self._sockets
        if sockets is None or not sockets[0].recv(1) or connection is None or on_written is None:
            return
        self._end()
        self._on_written = None
        try:
            on_written(connection.take_result())
        finally:
            held, self._held = self._held, []
            for item in held:
                self._put(item)

    def _settle(
        self,
        loop: asyncio.AbstractEventLoop,
        future: asyncio.Future[Any],
        result: Any,
        failure: BaseException | None,
    ) -> None:
        def settle() -> None:
            self._end()
            if future.done():
                return
            if failure is not None:
                future.set_exception(failure)
            else:
                future.set_result(result)

        try:
            loop.call_soon_threadsafe(settle)
        except RuntimeError:
            # The event loop is closed, and its awaiters with it.
            return
