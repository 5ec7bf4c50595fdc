"""Keeps runs in memory while they fit a budget of bytes."""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator

from perdure.core.ids import RunId
from perdure.engine.runs.warm import WarmRun
from perdure.host.runs.memory import MemoryUse

MOST_PINNED = 64
"""Pinned runs that one search for a victim passes over; the next search continues behind them."""

IsAboutToContinue = Callable[[WarmRun], bool]
"""Whether a run will be needed soon: it has an attempt here, or a step that waits for a slot, or a queued message."""


class RunCache:
    """Warm runs, each with an estimate of the bytes that it holds.

    Over the budget, the least recently used run leaves first. Runs that are about to continue leave last: a search sets
    them aside, and a run that is used again returns from there. So each use of a run costs at most one look at it,
    however many runs are about to continue.
    """

    def __init__(self, use: MemoryUse, is_about_to_continue: IsAboutToContinue) -> None:
        self.use = use
        self._is_about_to_continue = is_about_to_continue
        self._runs: OrderedDict[RunId, WarmRun] = OrderedDict()
        """Least recently used first. Some may be about to continue: no search has looked at them since their use."""
        self._set_aside: OrderedDict[RunId, WarmRun] = OrderedDict()
        """Runs that a search found pinned or about to continue, and that were not used since."""
        self._takes_newest = True
        """Whether the next victim among these is the most recently used one."""
        self._loads: Counter[RunId] = Counter()
        """How many callers wait for the load of each run. Such a run is not evicted: many runs that are loaded at once
        would otherwise evict each other again and again."""

    def __len__(self) -> int:
        return len(self._runs) + len(self._set_aside)

    def __contains__(self, run_id: object) -> bool:
        return run_id in self._runs or run_id in self._set_aside

    def __iter__(self) -> Iterator[WarmRun]:
        return iter([*self._set_aside.values(), *self._runs.values()])

    def add(self, run: WarmRun) -> None:
        if (former := self.get(run.run_id)) is not None:
            self.remove(former)
        self._runs[run.run_id] = run
        self.weigh(run)

    def get(self, run_id: RunId) -> WarmRun | None:
        run = self._runs.get(run_id)
        if run is not None:
            self._runs.move_to_end(run_id)
        elif self._set_aside:
            run = self._set_aside.pop(run_id, None)
            if run is not None:
                self._runs[run_id] = run
        return run

    def weigh(self, run: WarmRun) -> None:
        """Estimate again what a run holds, after a turn of it."""
        if self._set_aside:
            self.get(run.run_id)
        if self._runs.get(run.run_id) is run:
            size = run.estimated_bytes()
            self.use.used_bytes += size - run.counted_bytes
            run.counted_bytes = size

    def begin_load(self, run_id: RunId) -> None:
        """A caller waits for the run: keep it in memory until `end_load`."""
        self._loads[run_id] += 1

    def end_load(self, run_id: RunId) -> None:
        self._loads[run_id] -= 1
        if not self._loads[run_id]:
            del self._loads[run_id]

    def remove(self, run: WarmRun) -> None:
        for runs in (self._runs, self._set_aside):
            if runs.get(run.run_id) is run:
                del runs[run.run_id]
                self.use.used_bytes -= run.counted_bytes
                run.counted_bytes = 0

    def evict(self, run: WarmRun) -> None:
        """Take a run out of memory. The next fact for it loads it again."""
        self.remove(run)
        run.machine.close()

    def trim(self) -> None:
        """Evict runs until the others fit the budget. Runs that are pinned or whose load a caller awaits stay."""
        use = self.use
        while use.used_bytes > use.budget_bytes:
            idle = self._find_idle()
            victim = idle or self._find_set_aside()
            if victim is None:
                return
            self.evict(victim)
            use.evicted(len(self), is_early=idle is None)

    def _find_idle(self) -> WarmRun | None:
        """The least recently used run that may leave and is not about to continue."""
        runs = self._runs
        while runs:
            run = next(iter(runs.values()))
            if not (self._must_stay(run) or self._is_about_to_continue(run)):
                return run
            self._set_aside[run.run_id] = runs.pop(run.run_id)
        return None

    def _find_set_aside(self) -> WarmRun | None:
        """A run that is about to continue: in turn the most and the least recently used one.

        Runs that take their steps in turn need the least recently used one next, so that evicting only those would
        replay every run at every step. But one that has been waiting for a long attempt must not stay for ever. The
        last run stays: a run larger than the budget would otherwise be replayed at every step.
        """
        runs = self._set_aside
        if len(runs) == 1 and self.use.budget_bytes:
            return None
        is_newest = self._takes_newest
        for _ in range(min(len(runs), MOST_PINNED)):
            run = next(reversed(runs.values()) if is_newest else iter(runs.values()))
            if not self._must_stay(run):
                self._takes_newest = not is_newest
                return run
            runs.move_to_end(run.run_id, last=not is_newest)
        return None

    def _must_stay(self, run: WarmRun) -> bool:
        return run.is_pinned or run.run_id in self._loads
