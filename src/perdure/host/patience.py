"""How a host waits for a store that does not answer."""

import asyncio
from contextlib import suppress

FIRST_DELAY_S = 0.05
LONGEST_DELAY_S = 5.0


class Patience:
    """Waits longer each time, up to a limit, until it is renewed."""

    def __init__(self) -> None:
        self.delay_s = FIRST_DELAY_S
        """How long the next wait is."""

    async def wait(self, hurry: asyncio.Event | None = None) -> None:
        """Wait once; no longer than until `hurry` is set."""
        delay_s, self.delay_s = self.delay_s, min(self.delay_s * 2, LONGEST_DELAY_S)
        if hurry is None:
            await asyncio.sleep(delay_s)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(delay_s):
                await hurry.wait()

    def renew(self) -> None:
        self.delay_s = FIRST_DELAY_S
