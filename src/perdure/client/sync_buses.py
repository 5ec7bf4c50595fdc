"""Event buses for sync code: `engine.buses` of a `SyncEngine`."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from perdure.client.buses import BusInfo, EngineBuses
from perdure.store.bus_table import DeadLetter

if TYPE_CHECKING:
    from perdure.client.sync import SyncEngine


class SyncBuses:
    """Each method is the sync form of the same method of `EngineBuses`."""

    def __init__(self, engine: "SyncEngine", buses: EngineBuses) -> None:
        self._engine = engine
        self._buses = buses

    def all(self) -> list[BusInfo]:
        return self._engine.wait_for(self._buses.all())

    def info(self, bus: str) -> BusInfo:
        return self._engine.wait_for(self._buses.info(bus))

    def replay(
        self,
        bus: str,
        runs: Iterable[str] | None = None,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        programs: Sequence[str] | None = None,
    ) -> int:
        replaying = self._buses.replay(bus, runs, since=since, until=until, programs=programs)
        return self._engine.wait_for(replaying)

    def remove(self, bus: str) -> None:
        self._engine.wait_for(self._buses.remove(bus))

    def dead_letters(
        self,
        bus: str | None = None,
        run: str | None = None,
        *,
        after: DeadLetter | None = None,
        limit: int = 100,
    ) -> list[DeadLetter]:
        return self._engine.wait_for(self._buses.dead_letters(bus, run, after=after, limit=limit))

    def replay_letters(self, letters: Sequence[DeadLetter]) -> int:
        return self._engine.wait_for(self._buses.replay_letters(letters))

    def drop_letters(self, letters: Sequence[DeadLetter]) -> int:
        return self._engine.wait_for(self._buses.drop_letters(letters))
