"""Waiting until something has happened so many times."""

import asyncio


class Countdown:
    """Counts finished tasks; the program that started them waits for zero."""

    def __init__(self) -> None:
        self._left = 0
        self._over = asyncio.Event()

    def expect(self, ticks: int) -> None:
        """Begin to count; call it before the first tick."""
        self._left = ticks
        self._over.clear()

    def tick(self) -> None:
        self._left -= 1
        if not self._left:
            self._over.set()

    async def wait(self) -> None:
        await self._over.wait()
