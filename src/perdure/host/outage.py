"""Reports that the store does not accept what a host writes: once per outage, not once per attempt.

Every run, message and stream of a host retries by itself, so one full disk would fill the log that may be on it.
"""

import logging
import time
from collections.abc import Callable

from perdure.core.errors import StoreError

log = logging.getLogger("perdure.host")

FIRST_REMINDER_S = 60.0
LONGEST_REMINDER_S = 600.0
MAX_REASONS = 8
"""How many different errors of one outage are logged."""


class Outage:
    """One per host. Use it in the host's event loop only."""

    def __init__(self, store: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._began_s: float | None = None
        self._reasons: set[str] = set()
        self.attempts = 0
        """Attempts that failed in the current or the last outage."""
        self._next_reminder_s = 0.0
        self._reminder_s = FIRST_REMINDER_S

    def note(self, error: StoreError, what: str) -> None:
        """An attempt failed. `what` names the part that retries, such as "run r_1"."""
        now, reason = self._clock(), str(error)
        self.attempts += 1
        if self._began_s is None:
            self._began_s, self._reminder_s = now, FIRST_REMINDER_S
            self._reasons, self.attempts = set(), 1
        if reason not in self._reasons and len(self._reasons) < MAX_REASONS:
            self._reasons.add(reason)
            log.warning(
                "%s failed at %s; the host tries again, at most 5 s apart, and does not log each attempt: %s",
                *(self._store, what, error),
            )
        elif now >= self._next_reminder_s:
            log.warning(
                "%s has failed for %.0f s, at %d attempts: %s",
                *(self._store, now - self._began_s, self.attempts, error),
            )
        else:
            return
        self._next_reminder_s = now + self._reminder_s
        self._reminder_s = min(2 * self._reminder_s, LONGEST_REMINDER_S)

    def end(self) -> None:
        """An attempt succeeded after failures: the outage is over."""
        if self._began_s is None:
            return
        log.info("%s works again, after %.1f s", self._store, self._clock() - self._began_s)
        self._began_s = None
