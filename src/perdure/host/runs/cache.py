"""Keeps the most recently used runs in memory, up to a limit."""

from collections import Counter, OrderedDict
from collections.abc import Iterator

from perdure.core.ids import RunId
from perdure.engine.runs.warm import WarmRun


class RunCache:
    """Warm runs, least recently used first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._runs: OrderedDict[RunId, WarmRun] = OrderedDict()
        self._loads: Counter[RunId] = Counter()
        """How many callers wait for the load of each run. Such a run is not evicted: many runs that are loaded at once
        would otherwise evict each other again and again."""

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

    def begin_load(self, run_id: RunId) -> None:
        """A caller waits for the run: keep it in memory until `end_load`."""
        self._loads[run_id] += 1

    def end_load(self, run_id: RunId) -> None:
        self._loads[run_id] -= 1
        if not self._loads[run_id]:
            del self._loads[run_id]

    def remove(self, run: WarmRun) -> None:
        if self._runs.get(run.run_id) is run:
            del self._runs[run.run_id]

    def evict(self, run: WarmRun) -> None:
        """Take a run out of memory. The next fact for it loads it again."""
        self.remove(run)
        run.machine.close()

    def excess(self) -> list[WarmRun]:
        """The runs to evict: the least recently used that are not pinned and whose load no caller awaits."""
        surplus = len(self._runs) - self._limit
        if surplus <= 0:
            return []
        victims = []
        for run in self._runs.values():
            if not run.is_pinned and run.run_id not in self._loads:
                victims.append(run)
                if len(victims) == surplus:
                    break
        return victims
