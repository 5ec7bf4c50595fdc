"""The delays between attempts to reach a store that fails."""

import asyncio
import logging
from contextlib import suppress

from perdure.core.errors import BundleRefused, CommitRejected, PerdureError, StoreError
from perdure.host.outage import Outage

log = logging.getLogger("perdure.host")

FIRST_DELAY_S = 0.05
LONGEST_DELAY_S = 5.0


class Backoff:
    """Exponential backoff: each wait is twice as long as the one before, up to a limit, until `renew`."""

    def __init__(self, outage: Outage) -> None:
        self._outage = outage
        self._has_failed = False
        self.delay_s = FIRST_DELAY_S
        """The length of the next wait."""

    def blame(self, error: PerdureError, what: str) -> None:
        """An attempt of `what` failed: report it, unless it belongs to an outage that is reported already."""
        if not isinstance(error, StoreError):
            log.warning("%s failed, and is tried again in %.2f s: %s", what, self.delay_s, error)
            return
        self._has_failed = True
        self._outage.note(error, what)

    async def wait(self, hurry: asyncio.Event | None = None) -> None:
        """Wait once; `hurry` ends the wait early when it is set."""
        delay_s, self.delay_s = self.delay_s, min(self.delay_s * 2, LONGEST_DELAY_S)
        if hurry is None:
            await asyncio.sleep(delay_s)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(delay_s):
                await hurry.wait()

    def renew(self) -> None:
        """An attempt succeeded: reset the delay, and report the end of an outage."""
        self.delay_s = FIRST_DELAY_S
        if self._has_failed:
            self._has_failed = False
            self._outage.end()


def is_transient(error: Exception) -> bool:
    """Whether the store raised it and the same request may succeed later."""
    is_of_store = isinstance(error, StoreError | CommitRejected)
    return is_of_store and not isinstance(error, BundleRefused)
