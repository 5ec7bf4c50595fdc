"""Where time and randomness come from: the only way in which they enter the engine."""

from typing import Protocol


class Sources(Protocol):
    """The host's clock and entropy; tests have their own."""

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        ...

    def entropy(self, count: int) -> bytes:
        """Fresh random bytes."""
        ...
