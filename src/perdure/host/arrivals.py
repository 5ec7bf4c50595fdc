"""When a message came: by this the messages of a run, or of a mailbox, are sorted."""

from perdure.core.ids import RunId
from perdure.engine.sources import Sources


class Arrivals:
    """Milliseconds, of which no two messages to one place get the same: who sends one after the other is heard so."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._given: dict[RunId, int] = {}
        self._latest = 0

    def next(self, run_id: RunId) -> int:
        """The time now, or as little later as keeps the order."""
        now = self._sources.now_ms()
        if now > self._latest:
            self._given.clear()  # none of them is as late as now
        arrival = self._given[run_id] = max(now, self._given.get(run_id, 0) + 1)
        self._latest = max(self._latest, arrival)
        return arrival
