"""Where signals to a topic and key meet the hooks that wait for them.

Both are rows, and whoever comes second finds the first: after each commit that has one of them the host looks for
pairs. A host that dies before it looks leaves the pair to those who see at a glance that there is one.
"""

import asyncio

from perdure.host.host import Host


class Matcher:
    """Looks for pairs, one look at a time."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._turn = asyncio.Lock()
        self._is_asked = False
        host.on_hooks = self.look

    def look(self) -> None:
        """There may be a pair."""
        if not self._is_asked:
            self._is_asked = True
            self._host.spawn(self._look())

    async def look_now(self) -> None:
        """There may be a pair; returns when it has met."""
        self._is_asked = True
        await self._look()

    async def _look(self) -> None:
        async with self._turn:
            while self._is_asked:
                self._is_asked = False
                for message in await self._host.store.match_hooks(self._host.sources.now_ms()):
                    self._is_asked = True  # there may be more
                    self._host.on_message(message)
