"""Time and randomness for ledgers."""

import os
import time
from typing import Protocol

from perdure.core.operations.data import wall_time
from perdure.core.operations.heartbeat import Moment


class LedgerClock(Protocol):
    """Source of time and randomness for a ledger; tests pass their own."""

    def now_ms(self) -> int:
        """Milliseconds since 1970, for display only."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds of a clock that never goes back. Liveness is decided by this clock."""
        ...

    def entropy(self, count: int) -> bytes: ...


class SystemClock:
    """The clocks of this machine."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000  # noqa: TID251 - for display; no decision depends on it

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def entropy(self, count: int) -> bytes:
        return os.urandom(count)  # noqa: TID251 - ids must differ between processes


def read_clock(clock: LedgerClock) -> Moment:
    """Both clocks, read at the same moment."""
    return Moment(wall_time(clock.now_ms()), clock.monotonic_ms())
