"""Background tasks of a host, which no caller awaits."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class Background:
    """Keeps a reference to each task until it ends. `failed` is called with what a task raises."""

    def __init__(self, failed: Callable[[BaseException], None]) -> None:
        self._failed = failed
        self.tasks: set[asyncio.Task[Any]] = set()
        self._regular: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        self._begin(work, self.tasks)

    def repeat(self, work: Coroutine[Any, Any, Any]) -> None:
        """As `spawn`, for work that lasts as long as the host: a host that does only this is quiet."""
        self._begin(work, self._regular)

    def _begin(self, work: Coroutine[Any, Any, Any], among: set[asyncio.Task[Any]]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        among.add(task)
        task.add_done_callback(self._ended)

    def end_regular(self) -> None:
        """Cancel the work that lasts as long as the host."""
        for task in self._regular:
            task.cancel()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self.tasks.discard(task)
        self._regular.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(error)
