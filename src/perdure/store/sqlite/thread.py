"""A thread that owns one SQLite connection and runs what it is given, in order."""

import asyncio
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

import apsw

T = TypeVar("T")

_Job = tuple[Callable[[apsw.Connection], Any], asyncio.Future[Any], asyncio.AbstractEventLoop]


class ConnectionThread:
    """Opens the connection in its own thread, so that nothing blocks the event loop."""

    def __init__(self, name: str, connect: Callable[[], apsw.Connection]) -> None:
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._connect = connect
        self._thread = Thread(target=self._work, name=name, daemon=True)
        self._connection: apsw.Connection | None = None
        self._unanswered = 0

    async def open(self) -> None:
        """Start the thread; raises what connecting raises."""
        self._thread.start()
        await self.run(lambda _: None)

    async def run(self, job: Callable[[apsw.Connection], T]) -> T:
        """Call `job` with the connection, and wait for what it returns."""
        return await self.submit(job)

    def submit(self, job: Callable[[apsw.Connection], T]) -> asyncio.Future[T]:
        """Queue `job`. Once begun it is finished, even if nobody waits for it any more."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._unanswered += 1
        self._jobs.put((job, future, loop))
        return future

    @property
    def idle_connection(self) -> apsw.Connection | None:
        """The connection, for the event loop's own thread, while this thread has nothing to do."""
        return None if self._unanswered else self._connection

    async def close(self) -> None:
        """Finish what is queued, then close the connection."""
        if self._thread.is_alive():
            self._jobs.put(None)
            await asyncio.to_thread(self._thread.join)

    def _work(self) -> None:
        while (item := self._jobs.get()) is not None:
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
