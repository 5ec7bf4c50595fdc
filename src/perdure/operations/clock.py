"""The clocks and the randomness of a ledger's participants."""

import os
import time
from typing import Protocol

from perdure.core.operations.data import wall_time
from perdure.core.operations.heartbeat import Moment


class LedgerClock(Protocol):
    """Where a ledger takes time and randomness from; tests have their own."""

    def now_ms(self) -> int:
        """Milliseconds since 1970, to be read by people."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds since whenever, never backwards: liveness is judged by these."""
        ...

    def entropy(self, count: int) -> bytes: ...


class SystemClock:
    """The clocks of this machine."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000  # noqa: TID251 - for people; nothing is decided by it

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def entropy(self, count: int) -> bytes:
        return os.urandom(count)  # noqa: TID251 - ids must differ between processes


def moment(clock: LedgerClock) -> Moment:
    return Moment(wall_time(clock.now_ms()), clock.monotonic_ms())
