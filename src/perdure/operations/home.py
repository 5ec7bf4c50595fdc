"""A thread with an event loop of its own, where a ledger's reading, writing and heartbeats happen.

So a program whose own loop is busy, or blocked, is not taken for dead.
"""

import asyncio
from collections.abc import Callable, Coroutine
from threading import Thread
from typing import Any, TypeVar

from perdure.core.errors import StoreClosed

T = TypeVar("T")


class Home:
    """A daemon thread: it never keeps a process from ending."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()
        self._is_closed = False

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do it there, and wait for what it returns. What has begun is finished, even if nobody waits any more."""
        if self._is_closed:
            work.close()
            raise StoreClosed("the ledger is disposed", "use it before that")
        answer = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))
        try:
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            answer.add_done_callback(_look_at)
            raise

    def call(self, function: Callable[[], object]) -> None:
        """Call it there, soon."""
        if self._is_closed:
            raise StoreClosed("the ledger is disposed", "use it before that")
        self._loop.call_soon_threadsafe(function)

    async def close(self) -> None:
        if self._is_closed:
            return
        await self.run(_cancel_the_rest())
        self._is_closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.to_thread(self._thread.join)
        self._loop.close()


def _look_at(answer: asyncio.Future[Any]) -> None:
    """Nobody waits for it any more, so what it raises is nobody's."""
    if not answer.cancelled():
        answer.exception()


async def _cancel_the_rest() -> None:
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)
