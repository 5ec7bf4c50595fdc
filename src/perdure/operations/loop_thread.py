"""The thread and event loop in which a ledger reads, writes and sends heartbeats.

Heartbeats continue while the program's own event loop is busy or blocked.
"""

import asyncio
from collections.abc import Callable, Coroutine
from threading import Thread
from typing import Any, TypeVar

from perdure.core.errors import PerdureError, StoreClosed
from perdure.store.process import OwnProcess, never_free_in_child

T = TypeVar("T")


class LoopThread:
    """An event loop in a daemon thread, which does not keep the process alive."""

    def __init__(self, name: str, what: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()
        self._is_closed = False
        self.process = OwnProcess(what)
        never_free_in_child(self)

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine in the thread and returns its result. Cancelling the caller does not cancel it."""
        try:
            self.require_open()
        except PerdureError:
            work.close()
            raise
        result = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))
        try:
            return await asyncio.shield(result)
        except asyncio.CancelledError:
            result.add_done_callback(_ignore_error)
            raise

    def call(self, function: Callable[[], object]) -> None:
        """Schedules a function in the thread's event loop."""
        self.require_open()
        self._loop.call_soon_threadsafe(function)

    def require_open(self) -> None:
        """Raises after `close`, and in a forked child, which does not have the thread."""
        self.process.require()
        if self._is_closed:
            raise StoreClosed("the ledger is disposed", "create another Ledger")

    async def close(self) -> None:
        if self._is_closed:
            return
        await self.run(_cancel_other_tasks())
        self._is_closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.to_thread(self._thread.join)
        self._loop.close()


def _ignore_error(result: asyncio.Future[Any]) -> None:
    """Marks the error as retrieved: the caller was cancelled, and asyncio would log it."""
    if not result.cancelled():
        result.exception()


async def _cancel_other_tasks() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
