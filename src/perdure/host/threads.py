"""Threads for tasks that are not async. They never keep a process from ending."""

import asyncio
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any

Job = tuple[Callable[[], Any], asyncio.Future[Any]]


class Threads:
    """A few daemon threads, made when they are needed.

    Not those of `concurrent.futures`: the interpreter waits for these when it ends, and a task that hangs would
    keep it from ending.
    """

    def __init__(self, limit: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._limit = limit
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._threads = 0
        self._busy = 0

    def submit(self, job: Callable[[], Any]) -> asyncio.Future[Any]:
        """Run `job` in a thread; the future gets what it returns. It must not raise."""
        answer: asyncio.Future[Any] = self._loop.create_future()
        answer.add_done_callback(self._is_idle)
        self._busy += 1
        if self._busy > self._threads and self._threads < self._limit:
            self._threads += 1
            Thread(target=self._work, name="perdure-task", daemon=True).start()
        self._jobs.put((job, answer))
        return answer

    def close(self) -> None:
        """Let the threads end when they have nothing more to do."""
        for _ in range(self._threads):
            self._jobs.put(None)
        self._threads = 0

    def _is_idle(self, _: object) -> None:
        self._busy -= 1

    def _work(self) -> None:
        while (item := self._jobs.get()) is not None:
            job, answer = item
            result = job()
            try:
                self._loop.call_soon_threadsafe(_settle, answer, result)
            except RuntimeError:
                # The loop is gone, and with it whoever asked.
                return


def _settle(answer: asyncio.Future[Any], result: Any) -> None:
    if not answer.done():
        answer.set_result(result)
