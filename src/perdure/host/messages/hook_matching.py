"""Matches signals to a topic and key with the hooks that wait for them.

Both are rows. After each commit that writes a hook or such a signal, the host matches pairs. If the host dies before
that, the next heartbeat of any host reports the pair, and that host matches it.
"""

import asyncio

from perdure.host.context import HostContext


class Matcher:
    """Matches pairs, one statement at a time."""

    def __init__(self, context: HostContext) -> None:
        self._context = context
        self._lock = asyncio.Lock()
        self._is_asked = False

    def look(self) -> None:
        """Look for pairs in the background."""
        if not self._is_asked:
            self._is_asked = True
            self._context.spawn(self._look())

    async def look_now(self) -> None:
        """Look for pairs, and return when all are matched."""
        self._is_asked = True
        await self._look()

    async def _look(self) -> None:
        async with self._lock:
            while self._is_asked:
                self._is_asked = False
                for message in await self._context.store.match_hooks(
                    self._context.sources.now_ms()
                ):
                    self._is_asked = True  # there may be more
                    self._context.listener.message_sent(message)
