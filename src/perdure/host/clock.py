"""The only module that reads a real clock, and the system's randomness."""

import os
import time

from perdure.core.hosts.clock import corrected
from perdure.engine.sources import Sources

_BLOCK = 4096
"""Random bytes are read in blocks of this size, because a system call costs more than the bytes."""

LONGEST_HOLD_MS = 1000
"""The longest time that the clock stands still rather than go back."""


class HostSources(Sources):
    """The time of the store if it has a clock, otherwise of this machine; and random bytes.

    Once synchronized, it advances by a counter that can't be set, so changes to this machine's clock have no effect.
    Without synchronization it follows that clock, forwards and back; during steps back below `LONGEST_HOLD_MS`, as of
    clock corrections, it stands still.
    """

    def __init__(self) -> None:
        super().__init__()
        self._offset_ms: int | None = None
        """How far the store's clock is ahead of the counter."""
        self._latest_ms = 0
        self._block = b""
        self._used = 0

    def now_ms(self) -> int:
        now = _wall_ms() if self._offset_ms is None else elapsed_ms() + self._offset_ms
        if not 0 < self._latest_ms - now < LONGEST_HOLD_MS:
            self._latest_ms = now
        return self._latest_ms

    def elapsed_ms(self) -> int:
        return elapsed_ms()

    def synchronize(self, clock_ms: int, began_ms: int, ended_ms: int) -> None:
        self._offset_ms = corrected(self._offset_ms, clock_ms, began_ms, ended_ms)

    @property
    def skew_ms(self) -> int:
        return 0 if self._offset_ms is None else _wall_ms() - elapsed_ms() - self._offset_ms

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


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000  # noqa: TID251 - this is the clock


def steady_ms() -> int:
    """The clock by which a host judges other hosts: monotonic, and stands still while this machine sleeps."""
    return time.monotonic_ns() // 1_000_000


def elapsed_ms() -> int:
    """The clock by which a host judges itself: monotonic, and counts while this machine sleeps if the system can."""
    return time.clock_gettime_ns(_ELAPSED) // 1_000_000


_ELAPSED = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
