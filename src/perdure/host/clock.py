"""The one real clock, and the one real source of randomness."""

import os
import time

from perdure.engine.sources import Sources

_BLOCK = 4096
"""Random bytes are drawn from the system in blocks: a call into the kernel costs more than they do."""


class HostSources(Sources):
    """Time that never runs backwards within a process, and fresh random bytes."""

    def __init__(self) -> None:
        super().__init__()
        self._latest_ms = 0
        self._block = b""
        self._used = 0

    def now_ms(self) -> int:
        now = time.time_ns() // 1_000_000  # noqa: TID251 - this is the clock
        self._latest_ms = max(self._latest_ms, now)
        return self._latest_ms

    def entropy(self, count: int) -> bytes:
        if count > _BLOCK:
            return os.urandom(count)  # noqa: TID251 - this is the source
        end = self._used + count
        if end > len(self._block):
            self._block = os.urandom(_BLOCK)  # noqa: TID251 - this is the source
            self._used, end = 0, count
        drawn = self._block[self._used : end]
        self._used = end
        return drawn


def steady_ms() -> int:
    """By which a host judges others: it only goes forward, and stands still while this machine sleeps."""
    return time.monotonic_ns() // 1_000_000


def elapsed_ms() -> int:
    """By which a host judges itself: where the system has one, a clock that goes on while the machine sleeps."""
    return time.clock_gettime_ns(_ELAPSED) // 1_000_000


_ELAPSED = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
