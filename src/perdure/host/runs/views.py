"""Views: snapshots of runs, folded on demand from their journals. The store has none.

What was folded stays in memory, least recently used first out, so that the next view of a run reads only what its
journal has gained.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from weakref import WeakValueDictionary

from perdure.core.ids import RunId
from perdure.core.journal.entry import Entry
from perdure.core.runs.alerts import gap_alert
from perdure.core.runs.contract_event import ContractEvent, EngineRunRef
from perdure.core.runs.contract_reader import ContractReader, RunOrigin
from perdure.core.runs.projection import Projection, has_gap
from perdure.core.runs.snapshot import RunSnapshot, SequenceGap
from perdure.host.context import HostContext
from perdure.store.rows.records import Run

MAX_STEPS = 100_000
"""Steps that the views in memory hold together, at about 1 KB each."""

ENTRIES_PER_READ = 200


def reader_of(context: HostContext, chain: Sequence[Run], place: int) -> ContractReader:
    """A reader of the journal of one run of a chain."""
    run = chain[place]
    ref = EngineRunRef(run.program, run.version, run.digest, run.scope)
    origin = RunOrigin(run.run_id, ref, sum(each.seq for each in chain[:place]))
    if place:
        before = chain[place - 1]
        origin = origin._replace(before=before.run_id, before_seq=before.seq)
    return ContractReader(origin, context.codec)


class View:
    """The projection of one run, or of a chain of runs, and the place in their journals up to which it was read."""

    def __init__(self, context: HostContext, origin: RunId) -> None:
        self.projection = Projection(RunSnapshot(run_id=origin))
        self._context = context
        self._place = 0
        """The run of the chain that is read."""
        self._reader: ContractReader | None = None
        self._reported: SequenceGap | None = None

    @property
    def reader(self) -> ContractReader | None:
        """A reader that continues where the view is; `None` before the first entry."""
        return None if self._reader is None else self._reader.copied()

    @property
    def size(self) -> int:
        """What it counts for among the views in memory."""
        return self.projection.size + 1

    async def advance(self, chain: Sequence[Run]) -> None:
        """Read what the journals of these runs have gained, as far as no entry is missing."""
        while self._place < len(chain):
            run = chain[self._place]
            if self._reader is None:
                self._reader = reader_of(self._context, chain, self._place)
            while self._reader.seq < run.seq:
                first = self._reader.seq
                end = min(first + ENTRIES_PER_READ, run.seq)
                entries = await self._context.store.entries(run.run_id, first, end)
                if not self._apply(self._reader, entries, end):
                    return
            if self._place == len(chain) - 1:
                break
            self._place, self._reader = self._place + 1, None
        self._reported = None

    def _apply(self, reader: ContractReader, entries: Sequence[Entry], end: int) -> bool:
        """Apply entries up to the first gap. Returns whether there was none before `end`."""
        self.projection.apply(events_of(reader, entries))
        if reader.seq == end:
            return True
        found = next((entry.seq for entry in entries if entry.seq > reader.seq), end)
        self._halt(reader.origin, SequenceGap(reader.seq, found))
        return False

    def _halt(self, origin: RunOrigin, gap: SequenceGap) -> None:
        offset = origin.offset
        self.projection.halt(SequenceGap(offset + gap.expected, offset + gap.found))
        if self._reported != gap:
            self._reported = gap
            now_ms = self._context.sources.now_ms()
            alert = gap_alert(origin.run_id, gap.expected, gap.found, now_ms)
            self._context.alerts.raise_alert(alert)


def events_of(reader: ContractReader, entries: Sequence[Entry]) -> list[ContractEvent]:
    """The events of entries, up to the first gap."""
    events = []
    for entry in entries:
        if has_gap(reader.seq - 1, entry.seq):
            break
        events.append(reader.read(entry))
    return events


class Views:
    """The views in the memory of this process."""

    def __init__(self, context: HostContext) -> None:
        self._context = context
        self._views: OrderedDict[RunId, View] = OrderedDict()
        self._locks: WeakValueDictionary[RunId, asyncio.Lock] = WeakValueDictionary()
        """Of views that are being read."""
        self._held = 0

    async def view(self, chain: Sequence[Run]) -> View:
        """The view of a chain of runs, by rows that were just read."""
        origin = chain[0].run_id
        lock = self._locks.get(origin) or asyncio.Lock()
        self._locks[origin] = lock
        async with lock:
            view = self._views.pop(origin, None)
            if view is None:
                view = View(self._context, origin)
            else:
                self._held -= view.size
            # A failed read leaves the view out of memory: it may have stopped between two entries.
            await view.advance(chain)
            self._views[origin] = view
            self._held += view.size
            self._trim()
            return view

    def _trim(self) -> None:
        while self._held > MAX_STEPS and self._views:
            _, view = self._views.popitem(last=False)
            self._held -= view.size
