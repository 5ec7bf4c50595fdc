"""Where signals to a topic and key meet the hooks that wait for them.

Both are rows, and whoever comes second finds the first: after each commit that has one of them the host looks for
pairs. A host that dies before it looks leaves the pair to those who see at a glance that there is one.
"""

from perdure.host.host import Host


class Matcher:
    """Looks for pairs, one look at a time."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._is_looking = False
        self._is_asked = False
        host.on_hooks = self.look

    def look(self) -> None:
        """There may be a pair."""
        self._is_asked = True
        if not self._is_looking:
            self._is_looking = True
            self._host.spawn(self._look())

    async def look_now(self) -> None:
        """There is a pair; returns when it has met."""
        if not self._is_looking:
            self._is_looking = self._is_asked = True
            await self._look()

    async def _look(self) -> None:
        try:
            while self._is_asked:
                self._is_asked = False
                for message in await self._host.store.match_hooks(self._host.sources.now_ms()):
                    self._is_asked = True  # there may be more
                    self._host.on_message(message)
        finally:
            self._is_looking = False
