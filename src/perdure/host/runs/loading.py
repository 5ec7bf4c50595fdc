"""Loads runs into memory, and parks those that can't be loaded."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from perdure.core.errors import (
    ArtifactDamaged,
    ArtifactMissing,
    CommitRejected,
    CorruptJournal,
    PerdureError,
    StoreDamaged,
    StoreError,
)
from perdure.core.ids import RunId
from perdure.engine.runs.warm import WarmRun
from perdure.host.artifacts.payloads import LargePayloads
from perdure.host.context import HostContext
from perdure.host.runs.cache import RunCache
from perdure.host.runs.catalogue import Catalogue
from perdure.host.runs.parking import Parking, require_undamaged
from perdure.host.runs.reading import RunReader
from perdure.store.rows.records import StoredRun

Replay = Callable[[StoredRun], Awaitable[WarmRun]]
"""Makes a stored run warm; raises `PerdureError` if this host can't advance it."""


class _Load:
    """A run on its way into memory."""

    __slots__ = ("answer", "is_outdated")

    answer: "asyncio.Future[WarmRun | None]"

    def __init__(self) -> None:
        self.is_outdated = False


class Loader:
    """Loads each run once for all callers that ask at the same time."""

    def __init__(
        self,
        context: HostContext,
        cache: RunCache,
        parking: Parking,
        replay: Replay,
        catalogue: Catalogue,
    ) -> None:
        self._context = context
        self._reader = RunReader(context.store)
        self._cache = cache
        self._parking = parking
        self._replay = replay
        self._catalogue = catalogue
        self._loading: dict[RunId, _Load] = {}

    @property
    def tasks(self) -> set[asyncio.Future[Any]]:
        """The loads and reads under way."""
        return {load.answer for load in self._loading.values()} | self._reader.tasks

    async def load(self, run_id: RunId) -> WarmRun | None:
        """Bring a run back. `None` if it can't be advanced by this host."""
        self._cache.begin_load(run_id)
        try:
            while True:
                load = self._loading.get(run_id) or self._begin(run_id)
                warm = await asyncio.shield(load.answer)
                if not load.is_outdated:
                    return warm
        finally:
            self._cache.end_load(run_id)

    def outdate(self, run_id: RunId) -> None:
        """This host has just taken the run over: discard what a load under way has read of it."""
        load = self._loading.pop(run_id, None)
        if load is not None:
            load.is_outdated = True

    def _begin(self, run_id: RunId) -> "_Load":
        load = self._loading[run_id] = _Load()
        load.answer = asyncio.ensure_future(self._read(run_id, load))
        return load

    async def _read(self, run_id: RunId, load: "_Load") -> WarmRun | None:
        try:
            found = await self._find(run_id)
            if found is not None and found.run.damage is None:
                await self._catalogue.find_version(found.run.program, found.run.version)
            return await self._revive(load, found) if found and not load.is_outdated else None
        finally:
            # Not in a callback, which would come later: a caller in between would get an outdated load.
            if not load.is_outdated:
                del self._loading[run_id]

    async def _find(self, run_id: RunId) -> StoredRun | None:
        """What the store holds of a run. A run whose rows can't be read is parked; other runs are not affected."""
        try:
            return await self._reader.read(run_id)
        except StoreDamaged as error:
            run = await self._parking.find_damaged(run_id, error)
            problem = CorruptJournal(
                f"the rows of run {run_id!r} can't be read ({error.what})",
                "see the audit, restore them from a backup, and start the engine again",
            )
        if (
            run is not None
            and run.owner == self._context.host_id
            and not self._parking.leaves_alone(run)
        ):
            await self._parking.give_up(run, problem)
        return None

    async def _revive(self, load: _Load, stored: StoredRun) -> WarmRun | None:
        """Make a stored run warm. One that this host can't advance is parked, with the reason."""
        run = stored.run
        warm = self._cache.get(run.run_id)
        if warm is not None:
            return warm
        if run.owner != self._context.host_id or run.is_over:
            return None
        if self._parking.leaves_alone(run):
            return None
        try:
            require_undamaged(run)
            if self._context.payloads is not None:
                await prefetch(self._context.payloads, stored)
            warm = await self._replay(stored)
        except (StoreError, CommitRejected):
            raise
        except PerdureError as problem:
            await self._parking.give_up(run, problem)
            return None
        if run.parked is not None:
            await self._parking.park(run, None)
        if load.is_outdated:
            warm.machine.close()
            return None
        self._cache.use.replayed()
        self._cache.add(warm)
        return warm


async def prefetch(payloads: LargePayloads, stored: StoredRun) -> None:
    """Read the large payloads of a journal before its replay."""
    try:
        await payloads.prefetch(entry.payload for entry in stored.entries)
    except (ArtifactMissing, ArtifactDamaged) as error:
        raise CorruptJournal(
            f"a large payload of run {stored.run.run_id!r} can't be read ({error.what})",
            "restore the artifacts from a backup, and start the engine again",
        ) from error
