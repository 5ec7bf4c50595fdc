"""Which runs stay in memory: the most recently used ones, up to a limit."""

from collections import OrderedDict
from collections.abc import Iterator

from perdure.core.ids import RunId
from perdure.engine.replay.warm import WarmRun


class Residents:
    """Warm runs, the least recently used first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._runs: OrderedDict[RunId, WarmRun] = OrderedDict()

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[WarmRun]:
        return iter(list(self._runs.values()))

    def add(self, run: WarmRun) -> None:
        self._runs[run.run_id] = run

    def get(self, run_id: RunId) -> WarmRun | None:
        run = self._runs.get(run_id)
        if run is not None:
            self._runs.move_to_end(run_id)
        return run

    def remove(self, run: WarmRun) -> None:
        if self._runs.get(run.run_id) is run:
            del self._runs[run.run_id]

    def excess(self) -> list[WarmRun]:
        """The runs that must go. None of them has a commit under way."""
        surplus = len(self._runs) - self._limit
        if surplus <= 0:
            return []
        victims = []
        for run in self._runs.values():
            if not run.in_flight:
                victims.append(run)
                if len(victims) == surplus:
                    break
        return victims
