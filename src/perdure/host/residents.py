"""Which runs stay in memory: the most recently used ones, up to a limit."""

from collections import Counter, OrderedDict
from collections.abc import Iterator

from perdure.core.ids import RunId
from perdure.engine.replay.warm import WarmRun


class Residents:
    """Warm runs, the least recently used first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._runs: OrderedDict[RunId, WarmRun] = OrderedDict()
        self._awaited: Counter[RunId] = Counter()
        """How many wait for a run to be loaded. It stays until they had it: where many are loaded at
        once they would push each other out again and again."""

    def __len__(self) -> int:
        return len(self._runs)

    def __contains__(self, run_id: object) -> bool:
        return run_id in self._runs

    def __iter__(self) -> Iterator[WarmRun]:
        return iter(list(self._runs.values()))

    def add(self, run: WarmRun) -> None:
        self._runs[run.run_id] = run

    def get(self, run_id: RunId) -> WarmRun | None:
        run = self._runs.get(run_id)
        if run is not None:
            self._runs.move_to_end(run_id)
        return run

    def await_run(self, run_id: RunId) -> None:
        self._awaited[run_id] += 1

    def got_run(self, run_id: RunId) -> None:
        self._awaited[run_id] -= 1
        if not self._awaited[run_id]:
            del self._awaited[run_id]

    def remove(self, run: WarmRun) -> None:
        if self._runs.get(run.run_id) is run:
            del self._runs[run.run_id]

    def evict(self, run: WarmRun) -> None:
        """Take a run out of memory; whatever concerns it next brings it back."""
        self.remove(run)
        run.machine.close()

    def excess(self) -> list[WarmRun]:
        """The runs that must go. None of them has a commit under way, or is waited for."""
        surplus = len(self._runs) - self._limit
        if surplus <= 0:
            return []
        victims = []
        for run in self._runs.values():
            if not run.in_flight and run.run_id not in self._awaited:
                victims.append(run)
                if len(victims) == surplus:
                    break
        return victims
