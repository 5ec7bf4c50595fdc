"""Hints between the hosts of a simulation: each may be lost, late or doubled, or come when its host is dead."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from perdure.core.ids import HostId
from perdure.store.hints import OnHint

if TYPE_CHECKING:
    from perdure.testing.simulation import Simulation

FAULTS = ("arrives", "is lost", "arrives late", "arrives twice")


class HintExchange:
    """Carries the hints of one simulation. `choose` decides what becomes of each."""

    def __init__(self, choose: Callable[[str, Sequence[str]], str]) -> None:
        self._choose = choose
        self._receivers: dict[HostId, OnHint] = {}
        self._late: list[tuple[HostId | None, bytes]] = []
        """Hints that arrive with the next one."""

    def connect(self, host: HostId, on_hint: OnHint) -> None:
        self._receivers[host] = on_hint

    def disconnect(self, host: HostId) -> None:
        self._receivers.pop(host, None)

    def send(self, sender: HostId, to: HostId | None, data: bytes) -> None:
        late, self._late = self._late, []
        fault = self._choose(f"hint of {sender} to {to or 'all'}", FAULTS)
        for hint in late:
            self._deliver(*hint)
        if fault == "arrives late":
            self._late.append((to, data))
        elif fault != "is lost":
            for _ in range(2 if fault == "arrives twice" else 1):
                self._deliver(to, data)

    def _deliver(self, to: HostId | None, data: bytes) -> None:
        for host, on_hint in list(self._receivers.items()):
            if to in (None, host):
                on_hint(data)


def channel_in(simulation: "Simulation", host: HostId, on_hint: OnHint) -> "SimulatedHints | None":
    """The channel of a host; `None` if there are no hints in the simulation."""
    if simulation.hints is None:
        return None
    return SimulatedHints(simulation.hints, host, on_hint)


class SimulatedHints:
    """The channel of one host."""

    def __init__(self, exchange: HintExchange, host: HostId, on_hint: OnHint) -> None:
        self._exchange = exchange
        self._host = host
        self._on_hint = on_hint

    async def open(self) -> None:
        self._exchange.connect(self._host, self._on_hint)

    async def send(self, to: HostId | None, data: bytes) -> None:
        self._exchange.send(self._host, to, data)

    async def rename(self, host: HostId) -> None:
        self.close()
        self._host = host
        await self.open()

    def close(self) -> None:
        self._exchange.disconnect(self._host)
