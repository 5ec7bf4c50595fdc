"""To which buses the runs that this process creates are published."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from perdure.core.ids import RunId
from perdure.store.bus_table import StoredBus
from perdure.store.rows.records import Enrolment

LEASE_MS = 15_000
"""How long a relay holds a publication that it does not renew."""


class LocalRelay(NamedTuple):
    """A relay of this process. `expect` is called with each run that it holds from its birth."""

    holder: str
    expect: Callable[[RunId, int], None]


class Enrolments:
    """The buses of the store, as far as this process knows them. Without buses it is false and costs nothing."""

    def __init__(self) -> None:
        self._buses: tuple[StoredBus, ...] = ()
        self._relays: dict[str, LocalRelay] = {}

    def __bool__(self) -> bool:
        return bool(self._buses)

    def know(self, buses: Iterable[StoredBus]) -> None:
        self._buses = tuple(buses)

    def relayed(self, bus: str, relay: LocalRelay | None) -> None:
        """A relay of this process publishes to the bus, or does so no more (`None`)."""
        if relay is None:
            self._relays.pop(bus, None)
        else:
            self._relays[bus] = relay

    def of(
        self, run_id: RunId, program: str, now_ms: int, *, is_owned: bool = False
    ) -> tuple[Enrolment, ...]:
        """The buses to which a new run is published. Relays of this process hold those of runs that it owns."""
        enrolments = []
        for bus in self._buses:
            if not bus.gets(program):
                continue
            relay = self._relays.get(bus.name) if is_owned else None
            if relay is None:
                enrolments.append(Enrolment(bus.name))
            else:
                until_ms = now_ms + LEASE_MS
                relay.expect(run_id, until_ms)
                enrolments.append(Enrolment(bus.name, relay.holder, until_ms))
        return tuple(enrolments)
