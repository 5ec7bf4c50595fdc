"""Ledgers for tests: a clock that the test sets, and short settings."""

from collections.abc import Callable
from itertools import count

from perdure.operations import Ledger, LedgerSettings, Operation

BY_HAND = LedgerSettings(auto_heartbeat=False, lock_timeout=10, kill_grace=0.5)
"""The timing of the specification; heartbeats are the test's."""

QUICK = LedgerSettings(
    heartbeat_shortest=0.1,
    heartbeat_longest=0.2,
    staleness=1.5,
    notice=0.5,
    self_cleanup=0.5,
    backup_delay=0.5,
    lock_timeout=10,
    kill_grace=0.5,
)
"""For processes of their own, and the real clock."""

_numbers = count(1)


class Clock:
    """Time that stands still until the test moves it."""

    def __init__(self) -> None:
        self.passed_ms = 0

    def now_ms(self) -> int:
        return 1_769_083_200_000 + self.passed_ms

    def monotonic_ms(self) -> int:
        return self.passed_ms

    def entropy(self, count: int) -> bytes:
        return next(_numbers).to_bytes(8, "big")[-count:]


Open = Callable[..., Ledger]
"""Opens another ledger on the same place, as another process would."""


async def beats(clock: Clock, seconds: float, *operations: Operation, every: float = 5) -> None:
    """Heartbeats of these now, and then every so often while time passes."""
    end = clock.passed_ms + round(seconds * 1000)
    while True:
        for operation in operations:
            await operation.heartbeat()
            if operation._cleaning is not None:
                await operation._cleaning
        if clock.passed_ms == end:
            return
        clock.passed_ms = min(end, clock.passed_ms + round(every * 1000))
