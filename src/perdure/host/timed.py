"""Calls that have so long. When the time is over nobody waits for them any more, whatever they do about it."""

import asyncio
from collections.abc import Coroutine
from typing import Any


class TimedCall:
    """A call in an asyncio task of its own, which is cancelled and left when its time is over.

    `name` is what is said to be late. `total_s` is how long it may take, `silence_s` how long it may be without a sign
    of life.
    """

    def __init__(
        self,
        call: Coroutine[Any, Any, Any],
        name: str,
        total_s: float | None,
        silence_s: float | None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._name = name
        self._silence_s = silence_s
        self._over: asyncio.Future[None] = self._loop.create_future()
        """Done when it has ended, or is left."""
        self._problem: str | None = None
        self._total: asyncio.TimerHandle | None = None
        self._silence: asyncio.TimerHandle | None = None
        if total_s is not None:
            what = f"took longer than {total_s:g} s"
            self._total = self._loop.call_later(total_s, self._expire, what)
        self.task = self._loop.create_task(_contained(call))
        self.task.add_done_callback(self._ended)
        self.beat()

    def beat(self) -> None:
        """It is alive: its silence counts from now."""
        if self._silence_s is None or self._over.done():
            return
        if self._silence is not None:
            self._silence.cancel()
        what = f"gave no heartbeat for {self._silence_s:g} s"
        self._silence = self._loop.call_later(self._silence_s, self._expire, what)

    async def outcome(self) -> Any:
        """What it returns or raises, or `TimeoutError`.

        To cancel this cancels the call, and then it is waited for, as if it were awaited here.
        """
        while not self._over.done():
            try:
                await asyncio.wait([self._over])
            except asyncio.CancelledError:
                self._stop_clocks()
                self._silence_s = None
                self.task.cancel()
        if self._problem is not None:
            raise TimeoutError(self._problem)
        result, error = self.task.result()
        if error is not None:
            raise error
        return result

    def _expire(self, what: str) -> None:
        self._problem = f"{self._name} {what}"
        self.task.cancel()
        self._end()

    def _ended(self, _: object) -> None:
        if not self._over.done():
            self._end()

    def _end(self) -> None:
        self._stop_clocks()
        self._over.set_result(None)

    def _stop_clocks(self) -> None:
        for clock in (self._total, self._silence):
            if clock is not None:
                clock.cancel()


async def _contained(call: Coroutine[Any, Any, Any]) -> tuple[Any, BaseException | None]:
    """What a call returns or raises, as a value: what ends a process must not leave an asyncio task by itself."""
    try:
        return await call, None
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # raised again where it is waited for
        return None, error
