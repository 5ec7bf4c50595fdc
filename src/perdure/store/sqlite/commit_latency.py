"""The average latency of commits, which decides whether commits may use the event loop's own thread.

Handing a bundle to another thread and back costs about as much as a commit on a good disk. So a lone bundle is
committed in the loop's thread while commits are fast, and never while another process holds the file's lock.
"""

SLOW_S = 0.002
"""Commits that take longer than this on average must not block the event loop."""

WEIGHT = 1 / 16
"""The weight of the newest commit in the average."""


class CommitLatency:
    """The moving average of one connection's commits."""

    def __init__(self) -> None:
        self._average_s = 0.0
        self.is_low = True

    def record(self, took_s: float) -> None:
        """A lone bundle was committed, in either thread."""
        self._average_s += (took_s - self._average_s) * WEIGHT
        self.is_low = self._average_s < SLOW_S
