"""Reads the journals that callers of this process follow: one statement for all that have grown.

A commit of this process, a hint or a poll says which journals have grown (`Watchers`). What one follower has not taken
yet is not read for it again, so a slow caller needs no memory.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from perdure.core.errors import StoreClosed, StoreError
from perdure.core.ids import RunId
from perdure.core.journal.entry import Entry
from perdure.core.runs.alerts import gap_alert, lag_alert
from perdure.host.backoff import Backoff
from perdure.host.context import HostContext
from perdure.store.rows.records import JournalPart

MAX_RUNS = 500
"""Journals that one statement reads."""

MAX_ENTRIES = 10_000
"""Entries that one statement reads, in equal parts of each journal."""

MAX_PART = 200
"""Entries of one journal that one statement reads."""

MAX_LAG_MS = 5000
"""A projection that is further behind raises an alert."""

FIRST_LOOK_S, LONGEST_LOOK_S = 0.05, 1.0
"""How soon, and how often at least, a missing entry is looked for."""


class Follower:
    """One caller's place in one journal. `seq` is the number of the next entry that it takes."""

    def __init__(self, feed: "JournalFeed", run_id: RunId, seq: int, *, projects: bool) -> None:
        """With `projects` an alert reports that its entries are read late."""
        self.run_id = run_id
        self.seq = seq
        self.projects = projects
        self.has_grown = True
        self.gap: tuple[int, int] | None = None
        """The missing entry, and the one that came in its place."""
        self.wanted_ms: int | None = None
        """Since when it waits for the next entry."""
        self.is_late = False
        """Whether an alert has been raised because the entries were read late."""
        self._feed = feed
        self._read: asyncio.Future[list[Entry]] | None = None

    def set(self) -> None:
        """The journal has grown (`Watchers`)."""
        self.has_grown = True
        if self.is_wanted:
            self._feed.wake()

    @property
    def is_wanted(self) -> bool:
        """Whether it waits for entries, and there may be some."""
        return self.has_grown and self._read is not None and not self._read.done()

    def give(self, entries: list[Entry]) -> None:
        if self._read is not None and not self._read.done():
            self._read.set_result(entries)

    def fail(self, error: Exception) -> None:
        if self._read is not None and not self._read.done():
            self._read.set_exception(error)

    async def take(self) -> list[Entry]:
        """The next entries, in order and without a gap. An empty list: the journal has not grown, but the row of the
        run may have changed, or an entry is missing (`gap`)."""
        if self.wanted_ms is None:
            self.wanted_ms = self._feed.now_ms()
        self._read = asyncio.get_running_loop().create_future()
        if self.has_grown:
            self._feed.wake()
        try:
            entries = await self._read
        except BaseException:
            self.has_grown = True
            raise
        finally:
            self._read = None
        if entries:
            self.seq = entries[-1].seq + 1
            self.wanted_ms = None
        return entries


class JournalFeed:
    """One per process. Reads while followers wait and their journals grow; one read at a time."""

    def __init__(self, context: HostContext) -> None:
        self._context = context
        self._followers: set[Follower] = set()
        self._backoff = Backoff(context.outage)
        self._is_reading = False
        self._next_look_s = FIRST_LOOK_S
        self._look: asyncio.TimerHandle | None = None

    @asynccontextmanager
    async def follow(
        self, run_id: RunId, seq: int, *, projects: bool = False
    ) -> AsyncIterator[Follower]:
        """Follow a journal from entry `seq` on."""
        follower = Follower(self, run_id, seq, projects=projects)
        self._followers.add(follower)
        watchers = self._context.watchers
        watchers.notify(follower, run_id)
        try:
            yield follower
        finally:
            watchers.unfollow(follower, run_id)
            self._followers.discard(follower)

    def now_ms(self) -> int:
        return self._context.sources.now_ms()

    def close(self, error: Exception) -> None:
        """The host has stopped: raise `error` in all waiting callers."""
        for each in self._followers:
            each.fail(error)

    def wake(self) -> None:
        """Read in the background for the followers that wait for entries. A read under way includes them."""
        if not self._is_reading:
            self._is_reading = True
            self._context.spawn(self._read())

    async def _read(self) -> None:
        stopping = self._context.stopping
        try:
            while wanted := [each for each in self._followers if each.is_wanted]:
                try:
                    await self._read_for(wanted[:MAX_RUNS])
                except StoreClosed as error:
                    for each in wanted:
                        each.fail(error)
                except StoreError as error:
                    self._backoff.blame(error, "the read of journals that callers follow")
                    await self._backoff.wait(stopping)
                    if stopping.is_set():
                        return
                else:
                    self._backoff.renew()
        finally:
            self._is_reading = False

    async def _read_for(self, followers: list[Follower]) -> None:
        size = max(1, min(MAX_PART, MAX_ENTRIES // len(followers)))
        parts = {JournalPart(each.run_id, each.seq, each.seq + size) for each in followers}
        for each in followers:
            each.has_grown = False
        try:
            # One part of each journal in a statement: callers at different places of one journal need more statements.
            while parts:
                batch = {part.run_id: part for part in parts}
                parts -= set(batch.values())
                found = await self._context.store.grown(sorted(batch.values()))
                for each in followers:
                    if batch.get(each.run_id, (None, None))[1] == each.seq:
                        self._give(each, found.get(each.run_id, []), size)
        except BaseException:
            for each in followers:
                each.has_grown = True
            raise

    def _give(self, follower: Follower, entries: list[Entry], size: int) -> None:
        """Give a follower the entries up to the first gap."""
        contiguous = [entry for at, entry in enumerate(entries, follower.seq) if entry.seq == at]
        if follower.projects and entries:
            self._note_lag(follower, entries[0])
        if len(contiguous) < len(entries):
            self._note_gap(follower, len(contiguous), entries[len(contiguous)])
        else:
            follower.gap = None
            follower.has_grown |= len(entries) == size
        follower.give(contiguous)

    def _note_gap(self, follower: Follower, count: int, found: Entry) -> None:
        """Raise an alert once for each gap, and look until it closes."""
        gap = follower.seq + count, found.seq
        if follower.gap != gap:
            follower.gap, self._next_look_s = gap, FIRST_LOOK_S
            alert = gap_alert(follower.run_id, *gap, self.now_ms())
            self._context.alerts.raise_alert(alert)
        if self._look is None:
            loop = asyncio.get_running_loop()
            self._look = loop.call_later(self._next_look_s, self._look_for_missing)
            self._next_look_s = min(2 * self._next_look_s, LONGEST_LOOK_S)

    def _look_for_missing(self) -> None:
        self._look = None
        if self._context.is_killed:
            return
        for each in self._followers:
            each.has_grown |= each.gap is not None
        self.wake()

    def _note_lag(self, follower: Follower, oldest: Entry) -> None:
        """Raise an alert if the oldest entry that is not applied has waited for too long. The time before the follower
        waited does not count."""
        now_ms = self.now_ms()
        lag_ms = now_ms - max(oldest.at_ms, follower.wanted_ms or now_ms)
        if lag_ms > MAX_LAG_MS and not follower.is_late:
            self._context.alerts.raise_alert(lag_alert(follower.run_id, lag_ms, now_ms))
        follower.is_late = lag_ms > MAX_LAG_MS
