"""Learns for the callers of this process when runs of other processes end or grow.

One look serves all callers: one statement reads how far the runs are that they wait for.
"""

from collections.abc import Container, Sequence

from perdure.core.errors import CorruptJournal, StoreClosed, StoreError
from perdure.core.hosts.hints import Hint
from perdure.core.ids import RunId
from perdure.core.journal.state import TERMINAL
from perdure.host.backoff import Backoff
from perdure.host.context import HostContext
from perdure.host.watchers import RunEnding, Topic
from perdure.store.rows.records import Progress

MAX_RUNS = 1000
"""Runs that one statement reads."""

UNPARKED = None, None
"""What callers assume of a run before the first look: they have read its row."""


class RemoteRuns:
    """Looks once per poll, and whenever a hint says that a run has changed. One look at a time."""

    def __init__(self, context: HostContext, known: Container[RunId]) -> None:
        """`known` are the runs in memory: the dispatcher itself reports how these end and grow."""
        self._context = context
        self._in_memory = known
        self._seen: dict[RunId, tuple[object, ...]] = {}
        """What the last look found, of runs that are not over."""
        self._backoff = Backoff(context.outage)
        self._is_asked = False
        self._is_looking = False

    @property
    def waited(self) -> set[RunId]:
        """Runs that other processes may change, and that callers wait for."""
        return {*self.awaited, *self.followed}

    @property
    def awaited(self) -> list[RunId]:
        """Runs of other processes whose ends callers wait for."""
        return [
            run_id for run_id in self._context.watchers.awaited if run_id not in self._in_memory
        ]

    @property
    def followed(self) -> dict[RunId, list[Topic]]:
        """What callers follow and other processes may add to: journals of their runs, and streams of any run, to which
        tasks on queues append."""
        followed: dict[RunId, list[Topic]] = {}
        for topic in self._context.watchers.followed:
            run_id = topic if isinstance(topic, str) else topic[0]
            if topic is not run_id or run_id not in self._in_memory:
                followed.setdefault(run_id, []).append(topic)
        return followed

    def heed(self, hint: Hint) -> None:
        """Look if the hint is about a run that callers wait for."""
        if hint.has_more or any(map(self._context.watchers.waits_for, hint.changed)):
            self.look()

    def look(self) -> None:
        """Look in the background, if callers wait. If a look is under way, look again after it."""
        self._is_asked = bool(self.waited)
        if self._is_asked and not self._is_looking:
            self._is_looking = True
            self._context.spawn(self._look())

    async def _look(self) -> None:
        try:
            while self._is_asked:
                self._is_asked = False
                await self._look_at(sorted(self.waited))
        except StoreClosed:
            return
        except StoreError as error:  # the next poll looks again
            self._backoff.blame(error, "the look for changes of runs that callers wait for")
        else:
            self._backoff.renew()
        finally:
            self._is_looking = False

    async def _look_at(self, runs: Sequence[RunId]) -> None:
        self._seen = {run_id: self._seen[run_id] for run_id in runs if run_id in self._seen}
        for first in range(0, len(runs), MAX_RUNS):
            found = await self._context.store.progress(runs[first : first + MAX_RUNS])
            followed = self.followed
            for progress in found:
                self._report(progress, followed.get(progress.run.run_id, ()))

    def _report(self, progress: Progress, topics: Sequence[Topic]) -> None:
        """Wake the callers that wait for the run, if it has changed since the last look."""
        run, watchers = progress.run, self._context.watchers
        found = run.parked, run.damage, run.status, run.seq, progress.chunks
        seen = self._seen.get(run.run_id)
        if seen == found:
            return
        self._seen[run.run_id] = found
        for topic in topics:
            watchers.wake_followers(topic)
        if run.status in TERMINAL and run.parked is None:
            watchers.wake_waiting(run.run_id, _ending(progress))
        elif (seen or UNPARKED)[:2] != found[:2]:
            watchers.wake_waiting(run.run_id, None)


def _ending(progress: Progress) -> RunEnding | None:
    """How the run ended. `None` if its rows contradict each other: the caller reads them, and raises the reason."""
    try:
        return RunEnding.read(progress.run, progress.last)
    except CorruptJournal:
        return None
