"""Where time and randomness come from: the only way in which they enter the engine."""

from abc import ABC, abstractmethod

from perdure.core.ids import RunId


class Sources(ABC):
    """The host's clock and entropy; tests have their own."""

    def __init__(self) -> None:
        self._given: dict[RunId, int] = {}
        self._latest = 0

    @abstractmethod
    def now_ms(self) -> int:
        """Milliseconds since 1970."""

    @abstractmethod
    def entropy(self, count: int) -> bytes:
        """Fresh random bytes."""

    def arrival(self, place: RunId) -> int:
        """The time now, or as little later as keeps the order of what comes to one place: messages to a run or a
        mailbox, and hooks that wait for what is in one. Who comes after another is behind it, within a millisecond too.
        """
        now = self.now_ms()
        if now > self._latest:
            self._given.clear()  # none of them is as late as now
        arrival = self._given[place] = max(now, self._given.get(place, 0) + 1)
        self._latest = max(self._latest, arrival)
        return arrival
