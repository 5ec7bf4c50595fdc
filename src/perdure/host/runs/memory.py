"""Counts what the runs in memory hold, and logs when the budget is too small for them."""

import logging
from collections.abc import Callable

import msgspec

log = logging.getLogger("perdure.host")

PERIOD_MS = 1_000
"""Over how long a rate is measured."""

TOO_MANY_PER_S = 10
"""Runs about to continue that leave memory in a second: fewer replays than this are no burden."""

LOG_EVERY_MS = 60_000


class WarmMemory(msgspec.Struct, frozen=True):
    """What the runs in an engine's memory hold, and how often runs left memory and came back since it opened."""

    runs: int
    """Runs in memory."""

    used_bytes: int
    """What they hold, by an estimate."""

    budget_bytes: int
    """`Settings.warm_memory`."""

    evictions: int
    """Runs that left memory because the budget was used up."""

    early_evictions: int
    """How many of them were about to continue, because nothing else could leave. Each is replayed soon."""

    replays: int
    """Runs that were brought back into memory, for whatever reason: an eviction, a takeover, a restart."""


class MemoryUse:
    """The bytes that the runs in memory hold, the budget, and counts of evictions and replays."""

    def __init__(self, budget_bytes: int, elapsed_ms: Callable[[], int]) -> None:
        """`elapsed_ms` is a clock that never goes back."""
        self.budget_bytes = budget_bytes
        self.used_bytes = 0
        self.evictions = 0
        self.early_evictions = 0
        self.replays = 0
        self._elapsed_ms = elapsed_ms
        self._period = elapsed_ms(), 0, 0
        """When the current period began, and the early evictions and replays by then."""
        self._logged_ms: int | None = None

    def evicted(self, runs_left: int, *, is_early: bool) -> None:
        """A run left memory. It is early if the run was about to continue."""
        self.evictions += 1
        if is_early:
            self.early_evictions += 1
            self._watch(runs_left)

    def replayed(self) -> None:
        """A run was brought back into memory."""
        self.replays += 1

    def statistics(self, runs: int) -> WarmMemory:
        return WarmMemory(
            runs,
            self.used_bytes,
            self.budget_bytes,
            self.evictions,
            self.early_evictions,
            self.replays,
        )

    def _watch(self, runs: int) -> None:
        """Log when runs that are about to continue leave memory all the time. A budget of 0 asks for that."""
        now, (since, early_before, replays_before) = self._elapsed_ms(), self._period
        if now - since < PERIOD_MS or not self.budget_bytes:
            return
        self._period = now, self.early_evictions, self.replays
        early_per_s = (self.early_evictions - early_before) * 1000 // (now - since)
        replays_per_s = (self.replays - replays_before) * 1000 // (now - since)
        is_logged = self._logged_ms is not None and now - self._logged_ms < LOG_EVERY_MS
        if early_per_s < TOO_MANY_PER_S or is_logged:
            return
        self._logged_ms = now
        log.warning(
            "the active runs need more memory than warm_memory=%d: %d runs per second are evicted just before they "
            "continue, and %d are replayed per second; %d runs fit. Raise Settings.warm_memory, or let fewer runs be "
            "active at once",
            *(self.budget_bytes, early_per_s, replays_per_s, runs),
            extra={
                "event": "memory_thrashing",
                "warm_memory": self.budget_bytes,
                "runs": runs,
                "evictions_per_s": early_per_s,
                "replays_per_s": replays_per_s,
            },
        )
