"""Threads for sync tasks. They never keep the process from ending."""

import asyncio
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any

Job = tuple[Callable[[], Any], asyncio.Future[Any]]


class Threads:
    """A pool of daemon threads, created on demand.

    Not a `ThreadPoolExecutor`: the interpreter joins its threads at exit, so a task that hangs would keep the process
    from ending.
    """

    def __init__(self, limit: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._limit = limit
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._threads = 0
        self._busy = 0

    def submit(self, job: Callable[[], Any]) -> asyncio.Future[Any]:
        """Run `job` in a thread; the future gets its result. `job` must not raise."""
        future: asyncio.Future[Any] = self._loop.create_future()
        future.add_done_callback(self._job_ended)
        self._busy += 1
        if self._busy > self._threads and self._threads < self._limit:
            self._threads += 1
            Thread(target=self._work, name="perdure-task", daemon=True).start()
        self._jobs.put((job, future))
        return future

    def close(self) -> None:
        """Let each thread end when no job is left."""
        for _ in range(self._threads):
            self._jobs.put(None)
        self._threads = 0

    def _job_ended(self, _: object) -> None:
        self._busy -= 1

    def _work(self) -> None:
        while (item := self._jobs.get()) is not None:
            job, future = item
            result = job()
            try:
                self._loop.call_soon_threadsafe(_settle, future, result)
            except RuntimeError:
                # The event loop is closed, so no caller waits for the result.
                return


def _settle(future: asyncio.Future[Any], result: Any) -> None:
    if not future.done():
        future.set_result(result)
