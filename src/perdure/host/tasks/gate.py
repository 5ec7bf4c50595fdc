"""Whether attempts may start here: only while other hosts know that this one is alive."""

import asyncio

from perdure.core.hosts.watch import is_fresh
from perdure.host.clock import elapsed_ms


class Gate:
    """Open until the host has a heartbeat; from then on, while the last confirmed one is fresh."""

    def __init__(self, stale_after_ms: int) -> None:
        self._stale_after_ms = stale_after_ms
        self._has_heartbeat = False
        self._confirmed_ms: int | None = None
        self._confirmed = asyncio.Event()

    def confirm(self, at_ms: int) -> None:
        """The heartbeat that was sent at that time has arrived."""
        self._has_heartbeat = True
        self._confirmed_ms = at_ms
        self._confirmed.set()

    def shut(self) -> None:
        """Let nothing start until the next heartbeat is confirmed."""
        self._confirmed_ms = None

    @property
    def is_open(self) -> bool:
        if not self._has_heartbeat:
            return True
        at_ms = self._confirmed_ms
        return at_ms is not None and is_fresh(at_ms, elapsed_ms(), self._stale_after_ms)

    @property
    def silent_s(self) -> float | None:
        """Seconds since the last confirmed heartbeat; `None` if there was none since the gate was shut."""
        return None if self._confirmed_ms is None else (elapsed_ms() - self._confirmed_ms) / 1000

    async def wait(self) -> None:
        """Return when attempts may start."""
        while not self.is_open:
            self._confirmed.clear()
            await self._confirmed.wait()
