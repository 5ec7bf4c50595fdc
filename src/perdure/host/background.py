"""What goes on in a host by itself, with nobody who waits for it."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class Background:
    """Tasks that are kept until they end. `failed` is told what they raise."""

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
