"""Counts the commits under way whose submitters do not wait for them."""

import asyncio


class Undecided:
    """A host that stops lets these commits end."""

    def __init__(self) -> None:
        self._count = 0
        self._none = asyncio.Event()
        self._none.set()

    def __bool__(self) -> bool:
        return self._count > 0

    def begin(self) -> None:
        """A commit was submitted, or is about to be."""
        self._count += 1
        if self._count == 1:
            self._none.clear()

    def end(self) -> None:
        """A commit was decided, or was not submitted after all."""
        self._count -= 1
        if not self._count:
            self._none.set()

    async def wait(self) -> None:
        """Wait until all are decided."""
        await self._none.wait()
