"""The steps of runs, kept in memory, so that the next request reads only what the journal has gained."""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from functools import partial
from weakref import WeakValueDictionary

from perdure.api.exchange import Exchange
from perdure.api.runs.errors_of_runs import application_error
from perdure.core.codec import Codec
from perdure.core.ids import RunId
from perdure.core.runs.step_records import StepRecords
from perdure.store.rows.records import Run
from perdure.store.store import Store

MOST_STEPS = 200_000
"""Steps that are kept in memory together, at about half a KB each."""

ENTRIES_PER_READ = 1000


class RunSteps:
    """The steps of one chain of runs, and how far its journals were read."""

    def __init__(self, codec: Codec) -> None:
        self.records = StepRecords(partial(application_error, codec))
        self._place = 0
        self._seq = 0

    @property
    def size(self) -> int:
        return len(self.records.records) + 1

    async def advance(self, store: Store, chain: Sequence[Run]) -> None:
        """Read what the journals of these runs have gained."""
        while self._place < len(chain):
            run = chain[self._place]
            if self._seq == 0:
                self.records.begin(run.run_id)
            while self._seq < run.seq:
                end = min(self._seq + ENTRIES_PER_READ, run.seq)
                for entry in await store.entries(run.run_id, self._seq, end):
                    self.records.apply(entry)
                self._seq = end
            if self._place == len(chain) - 1:
                return
            self._place, self._seq = self._place + 1, 0


class StepCache:
    """The steps of the runs that were asked for last. One per server."""

    def __init__(self) -> None:
        self._held: OrderedDict[RunId, RunSteps] = OrderedDict()
        self._locks: WeakValueDictionary[RunId, asyncio.Lock] = WeakValueDictionary()
        self._count = 0

    async def steps(self, store: Store, codec: Codec, chain: Sequence[Run]) -> StepRecords:
        """The steps of a chain, by rows that were just read."""
        origin = chain[0].run_id
        lock = self._locks.get(origin) or asyncio.Lock()
        self._locks[origin] = lock
        async with lock:
            found = self._held.pop(origin, None)
            if found is None:
                found = RunSteps(codec)
            else:
                self._count -= found.size
            # A failed read leaves the steps out of memory: it may have stopped between two entries.
            await found.advance(store, chain)
            self._held[origin] = found
            self._count += found.size
            while self._count > MOST_STEPS and len(self._held) > 1:
                _, oldest = self._held.popitem(last=False)
                self._count -= oldest.size
            return found.records


async def steps_of_chain(exchange: Exchange, chain: Sequence[Run]) -> StepRecords:
    """The steps of the chain, from the cache of the server."""
    cache: StepCache = exchange.shared.setdefault("steps", StepCache())
    return await cache.steps(exchange.store, exchange.codec, chain)
