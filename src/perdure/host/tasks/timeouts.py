"""Runs a task attempt under its timeouts. After a timeout the caller stops waiting, even if the call refuses to end."""

import asyncio
from collections.abc import Coroutine
from typing import Any


class TimedCall:
    """A call in an asyncio task of its own, which is cancelled and abandoned at a timeout.

    `name` names the call in the error. `total_s` limits its duration, `silence_s` the time between two heartbeats.
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
        """Done when the call has ended or is abandoned."""
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
        """Restart the heartbeat timeout."""
        if self._silence_s is None or self._over.done():
            return
        if self._silence is not None:
            self._silence.cancel()
        what = f"gave no heartbeat for {self._silence_s:g} s"
        self._silence = self._loop.call_later(self._silence_s, self._expire, what)

    async def outcome(self) -> Any:
        """Returns what the call returns; raises what it raises, or `TimeoutError`.

        If this is cancelled it cancels the call, and waits for it without a limit, as a plain `await` would.
        """
        while not self._over.done():
            try:
                await asyncio.wait([self._over])
            except asyncio.CancelledError:
                self._cancel_timers()
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
        self._cancel_timers()
        self._over.set_result(None)

    def _cancel_timers(self) -> None:
        for timer in (self._total, self._silence):
            if timer is not None:
                timer.cancel()


async def _contained(call: Coroutine[Any, Any, Any]) -> tuple[Any, BaseException | None]:
    """The result or exception of a call, as values: a `SystemExit` that leaves an asyncio task ends the event loop."""
    try:
        return await call, None
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # raised again in `outcome`
        return None, error
