"""Whether bodies may begin here: only while others know that this host is alive."""

import asyncio

from perdure.core.hosts.watch import is_fresh
from perdure.host.clock import elapsed_ms


class Gate:
    """Open while the last confirmed heartbeat is fresh. Belongs to the event loop."""

    def __init__(self, stale_after_ms: int) -> None:
        self._stale_after_ms = stale_after_ms
        self._confirmed_ms: int | None = None
        self._confirmed = asyncio.Event()

    def confirm(self, at_ms: int) -> None:
        """A heartbeat that was begun then is known to have arrived."""
        self._confirmed_ms = at_ms
        self._confirmed.set()

    def shut(self) -> None:
        """Nothing may begin until the next heartbeat is confirmed."""
        self._confirmed_ms = None

    @property
    def is_open(self) -> bool:
        at_ms = self._confirmed_ms
        return at_ms is not None and is_fresh(at_ms, elapsed_ms(), self._stale_after_ms)

    @property
    def silent_s(self) -> float | None:
        """How long ago the last heartbeat was confirmed; `None` if none was since the gate was shut."""
        return None if self._confirmed_ms is None else (elapsed_ms() - self._confirmed_ms) / 1000

    async def wait(self) -> None:
        """Return when something may begin."""
        while not self.is_open:
            self._confirmed.clear()
            await self._confirmed.wait()
