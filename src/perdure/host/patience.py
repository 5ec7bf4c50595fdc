"""How a host waits for a store that does not answer."""

import asyncio

FIRST_DELAY_S = 0.05
LONGEST_DELAY_S = 5.0


class Patience:
    """Waits longer each time, up to a limit, until it is renewed."""

    def __init__(self) -> None:
        self.delay_s = FIRST_DELAY_S
        """How long the next wait is."""

    async def wait(self) -> None:
        delay_s, self.delay_s = self.delay_s, min(self.delay_s * 2, LONGEST_DELAY_S)
        await asyncio.sleep(delay_s)

    def renew(self) -> None:
        self.delay_s = FIRST_DELAY_S
