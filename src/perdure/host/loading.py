"""Bringing runs back into memory, and parking those that can't be brought back."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from perdure.core.errors import PerdureError
from perdure.core.ids import HostId, RunId
from perdure.core.journal.entry import Entry
from perdure.engine.replay.warm import WarmRun
from perdure.host.catalogue import Catalogue
from perdure.host.parking import Parking
from perdure.host.reading import Reader
from perdure.host.residents import Residents
from perdure.store.records import Run
from perdure.store.store import Store

Replay = Callable[[Run, Sequence[Entry]], WarmRun]
"""Makes a stored run warm; raises `PerdureError` if this host can't advance it."""


class _Load:
    """A run on its way into memory."""

    __slots__ = ("answer", "is_outdated")

    answer: "asyncio.Future[WarmRun | None]"

    def __init__(self) -> None:
        self.is_outdated = False


class Loader:
    """Loads each run once for all who ask at the same time."""

    def __init__(
        self,
        store: Store,
        host_id: HostId,
        residents: Residents,
        parking: Parking,
        replay: Replay,
        catalogue: Catalogue,
    ) -> None:
        self._reader = Reader(store)
        self.host_id = host_id
        """Whose runs may be loaded."""
        self._residents = residents
        self._parking = parking
        self._replay = replay
        self._catalogue = catalogue
        self._loading: dict[RunId, _Load] = {}

    @property
    def tasks(self) -> set[asyncio.Future[Any]]:
        """What goes on by itself, for all who asked."""
        return {load.answer for load in self._loading.values()} | self._reader.tasks

    async def load(self, run_id: RunId) -> WarmRun | None:
        """Bring a run back. `None` if it can't be advanced by this host."""
        self._residents.await_run(run_id)
        try:
            while True:
                load = self._loading.get(run_id) or self._begin(run_id)
                warm = await asyncio.shield(load.answer)
                if not load.is_outdated:
                    return warm
        finally:
            self._residents.got_run(run_id)

    def outdate(self, run_id: RunId) -> None:
        """The run is this host's from now on. What was read of it before tells nobody anything."""
        load = self._loading.pop(run_id, None)
        if load is not None:
            load.is_outdated = True

    def _begin(self, run_id: RunId) -> "_Load":
        load = self._loading[run_id] = _Load()
        load.answer = asyncio.ensure_future(self._read(run_id, load))
        return load

    async def _read(self, run_id: RunId, load: "_Load") -> WarmRun | None:
        try:
            found = await self._reader.read(run_id)
            if found is not None:
                await self._catalogue.look_for(found[0].program, found[0].version)
            return await self._revive(*found) if found and not load.is_outdated else None
        finally:
            # Not in a callback, which comes later: whoever asks in between would be given what is past.
            if not load.is_outdated:
                del self._loading[run_id]

    async def _revive(self, run: Run, entries: Sequence[Entry]) -> WarmRun | None:
        """Make a stored run warm. One that this host can't advance is parked, with the reason."""
        warm = self._residents.get(run.run_id)
        if warm is not None:
            return warm
        if run.owner != self.host_id or run.closed_at_ms is not None:
            return None
        if self._parking.leaves_alone(run):
            return None
        try:
            warm = self._replay(run, entries)
        except PerdureError as problem:
            await self._parking.give_up(run, problem)
            return None
        if run.parked is not None:
            await self._parking.park(run, None)
        self._residents.add(warm)
        return warm
