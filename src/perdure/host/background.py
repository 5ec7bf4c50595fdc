"""Background tasks of a host, which no caller awaits."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class Background:
    """Keeps a reference to each task until it ends. `failed` is called with what a task raises."""

    def __init__(self, failed: Callable[[BaseException], None]) -> None:
        self._failed = failed
        self.tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(error)
