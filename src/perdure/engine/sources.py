"""Time and randomness: their only way into the engine."""

from abc import ABC, abstractmethod

from perdure.core.ids import RunId


class Sources(ABC):
    """A host's clock and entropy; tests supply their own."""

    def __init__(self) -> None:
        self._given: dict[RunId, int] = {}
        self._latest = 0
        self._stamped = 0

    @abstractmethod
    def now_ms(self) -> int:
        """Milliseconds since 1970, on the clock that all hosts of a store share."""

    def elapsed_ms(self) -> int:
        """A monotonic counter for durations."""
        return self.now_ms()

    def synchronize(self, clock_ms: int, began_ms: int, ended_ms: int) -> None:  # noqa: B027 - not all can be set
        """Adjust to the store's clock, which showed `clock_ms` at some moment between two readings of the counter."""

    @property
    def skew_ms(self) -> int:
        """How far this machine's own clock is ahead of `now_ms`."""
        return 0

    def stamp(self) -> int:
        """The time now, or 1 ms after the last stamp if that is later: orders this process's writes even if its clock
        is set back."""
        self._stamped = max(self.now_ms(), self._stamped + 1)
        return self._stamped

    @abstractmethod
    def entropy(self, count: int) -> bytes:
        """Fresh random bytes."""

    def arrival(self, address: RunId) -> int:
        """The time now, or 1 ms after the last arrival at `address` if that is later.

        So arrivals order the messages to one run or mailbox, and the hooks on one mailbox, within a millisecond too.
        """
        now = self.now_ms()
        if now > self._latest:
            self._given.clear()  # all of them are in the past
        arrival = self._given[address] = max(now, self._given.get(address, 0) + 1)
        self._latest = max(self._latest, arrival)
        return arrival
