"""When a commit may use the event loop's own thread.

To hand a bundle to another thread and to hear from it costs about as much as a commit on a good disk.
So a lone bundle is committed in place, as long as commits are quick; never while another process
holds the file.
"""

SLOW_S = 0.002
"""If commits take longer than this on average, they do not hold up the event loop."""

WEIGHT = 1 / 16
"""What the newest commit counts in that average."""


class Pace:
    """What recent commits of one connection were like."""

    def __init__(self) -> None:
        self._average_s = 0.0

    def committed(self, took_s: float) -> None:
        """A lone bundle was committed, in whichever thread."""
        self._average_s += (took_s - self._average_s) * WEIGHT

    @property
    def is_quick(self) -> bool:
        return self._average_s < SLOW_S
