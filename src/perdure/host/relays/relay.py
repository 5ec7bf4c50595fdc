"""A relay: publishes the events of runs to one bus.

The truth is in the store: a row for each run and bus with the next entry to publish. A commit of this host is a hint
that a run has entries to publish; a sweep through the rows finds what no hint reported. Any number of hosts share the
rows by leases. A mark moves after the events before it are published: a crash repeats events and loses none. Each relay
publishes from the mark on without a gap, so first occurrences of a run's events are in their order.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress

from perdure.core.buses.delivery import delay_ms
from perdure.core.errors import (
    BusUnavailable,
    CorruptJournal,
    StoreClosed,
    StoreError,
)
from perdure.core.ids import RunId
from perdure.core.journal.contract import ENDS_OF_RUN
from perdure.core.journal.entry import Entry
from perdure.core.runs.alerts import bus_alert, dead_letter_alert, gap_alert
from perdure.core.runs.contract_event import ContractEvent
from perdure.host.backoff import Backoff
from perdure.host.bus.bus import EventBus
from perdure.host.bus.enrolling import LEASE_MS
from perdure.host.context import HostContext
from perdure.host.relays.marks import FLUSH_MS, Marks
from perdure.host.relays.track import NO_TAGS, Track, reason_of, wait_for_one
from perdure.host.runs.views import reader_of
from perdure.store.bus_table import DeadLetter, PublicationKey
from perdure.store.rows.records import JournalPart, Run

log = logging.getLogger("perdure.bus")

SWEEP_MS = 1000
"""How often rows are examined that no hint named."""

SWEPT_ROWS = 2000
"""How many rows one sweep examines; the next one continues behind them."""

GATHER_S = 0.02
"""How long hints gather before the relay reads for all of them together."""

MAX_TRACKS = 10_000
"""Publications in memory. What is forgotten is read again from the first entry of its run."""

MAX_PART = 200
"""Entries of one run that are read at a time."""

MAX_ENTRIES = 2000
"""Entries that are read at a time, in equal parts of each run."""

MAX_CLAIMS = 200
"""Publications that are claimed at a time."""

PROBES = 2
"""Runs with which a relay tries whether a bus takes events again."""


class Relay:
    """One per bus and host."""

    def __init__(self, context: HostContext, bus: EventBus) -> None:
        self.bus = bus
        self.holder = f"{context.host_id}/{context.sources.entropy(8).hex()}"
        self._context = context
        self._store = context.store
        self._tracks: OrderedDict[PublicationKey, Track] = OrderedDict()
        self._active: dict[PublicationKey, Track] = {}
        """Those of them that may have something to publish."""
        self._unclaimed: dict[PublicationKey, None] = {}
        """Publications with something to publish that this relay does not hold."""
        self._marks = Marks(context.store, bus.name, self.holder)
        self._after: PublicationKey | None = None
        """Where the next sweep continues."""
        self._next_sweep_ms = self._retry_at_ms = 0
        self._is_crowded = False  # whether more could be published than may be at the same time
        self._failures = 0
        """How often the bus was unavailable since it last took an event."""
        self._published = 0
        self._down_since_ms: int | None = None
        self._publishing: set[asyncio.Task[None]] = set()
        self._awake = asyncio.Event()
        self._beginning = asyncio.Lock()
        self._loop_task: asyncio.Task[None] | None = None

    # Hints

    def expect(self, run_id: RunId, lease_until_ms: int) -> None:
        """A run is being created whose publication this relay holds from its birth."""
        key = PublicationKey(run_id)
        track = Track(key, 0, None, lease_until_ms, is_expected=True, has_grown=False)
        self._tracks[key] = track
        self._trim()

    def run_grew(self, run_id: RunId) -> None:
        """A commit of this host added to the journal of the run."""
        key = PublicationKey(run_id)
        track = self._tracks.get(key)
        if track is None:
            if len(self._unclaimed) >= MAX_TRACKS:
                return  # a sweep finds it
            self._unclaimed[key] = None
        else:
            track.has_grown = True
            self._active[key] = track
        self._awake.set()

    # Life

    def start(self) -> None:
        self._loop_task = asyncio.get_running_loop().create_task(self._relay_for_ever())

    async def stop(self, grace_s: float) -> None:
        """Publish what this host's runs have written, within `grace_s`; write the marks, release all publications."""
        await self._end_loop()
        with suppress(StoreError, TimeoutError):
            async with asyncio.timeout(grace_s):
                while await self._begin() or self._publishing:
                    await wait_for_one(self._publishing)
        await self._end_publishing()
        for track in self._tracks.values():
            self._marks.set(track.key, track.seq)
        with suppress(StoreError):
            await self._write(lease_until_ms=0)
        self._tracks.clear()
        await self.bus.close()

    async def _end_loop(self) -> None:
        if self._loop_task is not None:
            self._loop_task.cancel()
            await asyncio.wait({self._loop_task})

    async def _end_publishing(self) -> None:
        for task in self._publishing:
            task.cancel()
        if self._publishing:
            await asyncio.wait(self._publishing)

    def kill(self) -> None:
        """Stop at once, as a crash would."""
        for task in (self._loop_task, *self._publishing):
            if task is not None:
                task.cancel()

    async def _relay_for_ever(self) -> None:
        backoff = Backoff(self._context.outage)
        while True:
            try:
                while await self._begin() and self._is_crowded:  # noqa: ASYNC110 - let short publishes end
                    await asyncio.sleep(0)
                await self._flush_if_due()
                backoff.renew()
                await self._wait()
            except StoreClosed:
                return
            except StoreError as error:
                backoff.blame(error, f"bus {self.bus.name!r}")
                await backoff.wait(self._context.stopping)
            except Exception as error:  # a relay that stopped would publish nothing more
                self._context.fail(error)
                await backoff.wait(self._context.stopping)

    async def _wait(self) -> None:
        """Wait for a hint, for an event that was published, or until something is due."""
        now_ms = self._context.sources.now_ms()
        due_ms = min(self.next_due_ms(now_ms) or self._next_sweep_ms, self._next_sweep_ms)
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0, due_ms - now_ms + 1) / 1000):
                await self._awake.wait()
        if self._awake.is_set():
            await asyncio.sleep(GATHER_S)
            self._awake.clear()

    def next_due_ms(self, now_ms: int) -> int | None:
        """When an event is tried again, or a mark is to be written; `None` if neither is."""
        due = []
        if self._marks:
            due.append(self._marks.next_flush_ms)
        waiting = [t.retry_at_ms for t in self._active.values() if t.retry_at_ms > now_ms]
        due += [max(at_ms, self._retry_at_ms) for at_ms in waiting]
        if self._retry_at_ms > now_ms:
            due.append(self._retry_at_ms)
        return min(due, default=None)

    async def work(self) -> None:
        """Publish all that may be published now, found by a whole sweep, and write the marks."""
        self._sweep_next_from(None)
        while await self._begin() or self._publishing or self._after is not None:
            await wait_for_one(self._publishing)
            if self._after is not None:
                self._sweep_next_from(self._after)
        await self._write(self._lease_until_ms())

    def _sweep_next_from(self, after: PublicationKey | None) -> None:
        self._next_sweep_ms, self._after = 0, after

    # What to publish

    async def _begin(self) -> int:
        """Find what is to be published, and begin with as much of it as may be published at the same time.

        Returns how many runs it has read.
        """
        async with self._beginning:
            now_ms = self._context.sources.now_ms()
            if now_ms >= self._next_sweep_ms:
                await self._sweep(now_ms)
            free = self._free(now_ms)
            if not free:
                return 0
            ready = self._ready(now_ms)
            if len(ready) < free and self._unclaimed:
                await self._claim(now_ms)
                ready = self._ready(now_ms)
            self._is_crowded = len(ready) > free or bool(self._unclaimed)
            if ready:
                await self._read(ready[:free])
            return len(ready)

    def _free(self, now_ms: int) -> int:
        """How many more runs may be published now."""
        if self._failures:
            return 0 if now_ms < self._retry_at_ms else max(0, PROBES - len(self._publishing))
        return max(0, self.bus.concurrency - len(self._publishing))

    def _ready(self, now_ms: int) -> list[Track]:
        """The publications with something to publish, of a bus that fails those first that failed less often."""
        ready = []
        for track in list(self._active.values()):
            if not track.is_active:
                del self._active[track.key]
            elif track.is_ready(now_ms):
                if track.lease_until_ms > now_ms:
                    ready.append(track)
                else:
                    del self._active[track.key]
                    self._unclaimed[track.key] = None
        if self._failures:
            ready.sort(key=lambda track: track.failures)
        return ready

    async def _sweep(self, now_ms: int) -> None:
        """Find publications that no hint named. Each sweep continues where the last one ended."""
        self._next_sweep_ms = now_ms + SWEEP_MS
        await self._write(self._lease_until_ms())  # what has ended is not found again
        where = self.bus.name, self.holder
        page = await self._store.buses.ahead(*where, self._after, now_ms, SWEPT_ROWS)
        self._after = page.last
        for key in page.ahead:
            track = self._tracks.get(key)
            if track is None:
                self._unclaimed[key] = None
            else:
                track.has_grown = True
                self._active[key] = track

    async def _claim(self, now_ms: int) -> None:
        keys = list(self._unclaimed)[:MAX_CLAIMS]
        until_ms = self._lease_until_ms()
        where = self.bus.name, self.holder
        found = await self._store.buses.claim(*where, keys, now_ms, until_ms)
        claimed = {each.key: each for each in found}
        for key in keys:
            self._unclaimed.pop(key, None)
            known = self._tracks.pop(key, None)
            if key in claimed:
                track = Track.of(claimed[key], until_ms, known)
                self._tracks[key] = self._active[key] = track
        self._trim()

    def _trim(self) -> None:
        """Forget the tracks that were used longest ago and have nothing to publish or to write."""
        while len(self._tracks) > MAX_TRACKS:
            key, track = next(iter(self._tracks.items()))
            if track.is_active or key in self._marks:
                self._tracks.move_to_end(key)
                return
            self._forget(track)

    def _forget(self, track: Track) -> None:
        self._tracks.pop(track.key, None)
        self._active.pop(track.key, None)

    # Reading

    async def _read(self, tracks: Sequence[Track]) -> None:
        """Read the next entries of these runs, with one statement, and begin to publish them."""
        await self._make_readers([each for each in tracks if each.reader is None])
        tracks = [each for each in tracks if each.key in self._tracks and each.reader is not None]
        reading: dict[RunId, Track] = {}
        for track in tracks:
            reading.setdefault(
                track.key.run_id, track
            )  # a replay of the same run is read next time
        if self.bus.tags and reading:
            tags = await self._store.buses.tags(list(reading))
            for run_id, track in reading.items():
                track.tags = tags.get(run_id, NO_TAGS)
        parts = []
        size = max(1, min(MAX_PART, MAX_ENTRIES // max(1, len(reading))))
        for track in reading.values():
            track.has_grown = False
            first = track.read_from
            parts.append(JournalPart(track.key.run_id, first, first + size))
        try:
            found = await self._store.grown(parts) if parts else {}
        except BaseException:
            for track in reading.values():
                track.has_grown = True
            raise
        for run_id, track in reading.items():
            entries = found.get(run_id, [])
            track.has_grown = track.has_grown or len(entries) == size
            if entries or track.pending is not None:
                self._publish_soon(track, entries)

    async def _make_readers(self, tracks: Sequence[Track]) -> None:
        if not tracks:
            return
        runs = {r.run_id: r for r in await self._store.runs([t.key.run_id for t in tracks])}
        for track in tracks:
            run = runs.get(track.key.run_id)
            if run is None:
                track.has_grown = False
                if not track.is_expected:
                    self._ended(track)  # the run was deleted
                continue
            chain: Sequence[Run] = [run]
            if run.chain is not None:
                chain = await self._store.chain(run.chain)
            place = [each.run_id for each in chain].index(run.run_id)
            track.reader = reader_of(self._context, chain, place)

    # Publishing

    def _publish_soon(self, track: Track, entries: Sequence[Entry]) -> None:
        track.is_busy = True
        self._tracks.move_to_end(track.key)
        task = asyncio.get_running_loop().create_task(self._publish_entries(track, entries))
        self._publishing.add(task)
        task.add_done_callback(self._publishing.discard)

    async def _publish_entries(self, track: Track, entries: Sequence[Entry]) -> None:
        """Publish the events of these entries in order, up to the first that the bus does not take."""
        try:
            if track.pending is not None and not await self._publish(track, track.pending):
                track.has_grown = True
                return
            for entry in entries:
                if track.end_seq is not None and track.seq >= track.end_seq:
                    break
                event = self._event(track, entry)
                if event is not None and not await self._publish(track, event):
                    track.has_grown = True
                    return
            reader = track.reader
            is_over = reader is not None and reader.last in ENDS_OF_RUN
            if is_over or (track.end_seq is not None and track.seq >= track.end_seq):
                self._ended(track)
        except Exception as error:  # one journal that can't be read must not end the others
            self._unreadable(track, error)
        finally:
            track.is_busy = False
            if track.is_active and track.key in self._tracks:
                self._active[track.key] = track
            self._awake.set()

    def _event(self, track: Track, entry: Entry) -> ContractEvent | None:
        """The event of the next entry, if the bus gets it."""
        reader, bus = track.reader, self.bus
        assert reader is not None  # noqa: S101 - made before anything is read
        if entry.seq < track.seq:
            reader.skip(entry)
            return None
        event = reader.read(entry) if bus.types is None else reader.read_if(entry, bus.types)
        if event is not None and bus.tags.items() <= track.tags.items():
            return bus.shown(event)
        self._passed(track, entry.seq)
        return None

    async def _publish(self, track: Track, event: ContractEvent) -> bool:
        """Whether the event is published now, or a dead letter."""
        track.pending = event
        try:
            if (pending := self.bus.begin(event)) is not None:
                async with asyncio.timeout(self.bus.timeout_s):
                    await pending
        except (BusUnavailable, ConnectionError, TimeoutError) as error:
            self._note_unavailable(track, error)
        except Exception as error:  # whatever else a bus raises is about this event
            self._note_refused(track, error)
        else:
            self._note_published()
            self._passed(track, event.seq)
        return track.pending is None

    def _passed(self, track: Track, seq: int) -> None:
        track.passed()
        track.seq = seq + 1
        self._marks.set(track.key, track.seq)

    def _ended(self, track: Track) -> None:
        """All of it is published."""
        self._marks.end(track.key)
        self._forget(track)

    # Failures

    def _note_published(self) -> None:
        self._published += 1
        self._failures = 0
        if self._down_since_ms is not None:
            self._down_since_ms = None
            log.info("bus %s takes events again", self.bus.name)
            self._context.spawn(self._note_state(None))

    def _note_unavailable(self, track: Track, error: Exception) -> None:
        """Let all events wait. An event that fails while the bus takes others counts as refused."""
        is_alone = track.failures > 0 and self._published > track.published_before
        track.failures += 1
        track.published_before = self._published
        if is_alone:
            self._note_refused(track, error)
            return
        now_ms = self._context.sources.now_ms()
        self._failures += 1
        wait_ms = delay_ms(self._failures, self._chance(), getattr(error, "retry_after", None))
        self._retry_at_ms = max(self._retry_at_ms, now_ms + wait_ms)
        track.retry_at_ms = self._retry_at_ms
        if self._down_since_ms is None:
            self._down_since_ms = now_ms
            reason = reason_of(error)
            self._context.alerts.raise_alert(bus_alert(self.bus.name, reason, now_ms))
            self._context.spawn(self._note_state(reason))

    def _note_refused(self, track: Track, error: Exception) -> None:
        """Try the event again later; after some tries it is a dead letter, and the run's next events follow."""
        event, now_ms = track.pending, self._context.sources.now_ms()
        assert event is not None  # noqa: S101 - it was just tried
        track.tries += 1
        track.failures = max(track.failures, track.tries)
        if track.tries < self.bus.tries:
            track.retry_at_ms = now_ms + delay_ms(track.tries, self._chance())
            return
        name, reason = self.bus.name, reason_of(error)
        letter = DeadLetter(
            name, event.run_id, event.seq, event.type.value, reason, track.tries, now_ms
        )
        self._marks.give_up(letter)
        self._passed(track, event.seq)
        alert = dead_letter_alert(name, event.run_id, event.seq, reason, now_ms)
        self._context.alerts.raise_alert(alert)

    def _unreadable(self, track: Track, error: Exception) -> None:
        """Wait, and read the journal again from its first entry."""
        now_ms = self._context.sources.now_ms()
        track.reader, track.has_grown = None, True
        track.failures += 1
        track.retry_at_ms = now_ms + delay_ms(track.failures, self._chance())
        if isinstance(error, CorruptJournal):
            if track.failures == 1:
                alert = gap_alert(track.key.run_id, track.seq, track.seq + 1, now_ms)
                self._context.alerts.raise_alert(alert)
        else:
            self._context.fail(error)

    async def _note_state(self, reason: str | None) -> None:
        """Commits: since when the bus is down, for people who look at the store."""
        with suppress(StoreError):
            await self._store.buses.note(self.bus.name, self._down_since_ms, reason)

    def _chance(self) -> float:
        return int.from_bytes(self._context.sources.entropy(2), "big") / 65536

    # Marks

    def _lease_until_ms(self) -> int:
        return self._context.sources.now_ms() + LEASE_MS

    async def _flush_if_due(self) -> None:
        now_ms = self._context.sources.now_ms()
        if now_ms < self._marks.next_flush_ms:
            return
        self._marks.next_flush_ms = now_ms + FLUSH_MS
        for track in self._active.values():
            if track.lease_until_ms - now_ms < LEASE_MS // 2:
                self._marks.set(track.key, track.seq)
        await self._write(self._lease_until_ms())

    async def _write(self, lease_until_ms: int) -> None:
        """Commits: the marks of what is published, and dead letters."""
        for key in await self._marks.write(lease_until_ms):
            if (track := self._tracks.get(key)) is not None:
                track.lease_until_ms = lease_until_ms
