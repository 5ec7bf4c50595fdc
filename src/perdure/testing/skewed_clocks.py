"""Hosts and senders whose clocks differ, and messages that the owner of their run sends itself."""

from typing import TYPE_CHECKING, Any

from perdure.core.ids import RunId
from perdure.core.messages import Message
from perdure.engine.sources import Sources
from perdure.store.commit.bundle import Bundle

if TYPE_CHECKING:
    from perdure.testing.simulation import Simulation

HOUR_MS = 3_600_000

SKEWS_MS = {"is right": 0, "is an hour ahead": HOUR_MS, "is an hour behind": -HOUR_MS}


class SkewedSources(Sources):
    """The simulation's time and entropy for a host whose clock is wrong. It measures durations correctly."""

    def __init__(self, simulation: "Simulation", ahead_ms: int) -> None:
        super().__init__()
        self._base = simulation.sources
        self._ahead_ms = ahead_ms

    def now_ms(self) -> int:
        return self._base.now_ms() + self._ahead_ms

    def elapsed_ms(self) -> int:
        return self._base.elapsed_ms()

    def entropy(self, count: int) -> bytes:
        return self._base.entropy(count)


class SenderSources(SkewedSources):
    """The clocks of outside senders: each message has a sender of its own, whose clock may be wrong."""

    def __init__(self, simulation: "Simulation") -> None:
        super().__init__(simulation, 0)
        self._simulation = simulation
        self._sent = 0

    def arrival(self, place: RunId) -> int:
        self._sent += 1
        skew = self._simulation.choose(f"clock of sender {self._sent}", list(SKEWS_MS))
        return super().arrival(place) + SKEWS_MS[skew]


class SenderStore:
    """The store of outside senders. A message may come from the owner of its run, which then has it without a poll."""

    def __init__(self, simulation: "Simulation") -> None:
        self._simulation = simulation
        self._sent = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._simulation.store, name)

    async def commit(self, bundle: Bundle) -> None:
        await self._simulation.store.commit(bundle)
        for message in bundle.messages:
            self._sent += 1
            options = ["is found by its owner", "is sent by its owner"]
            chosen = self._simulation.choose(f"message {self._sent}", options)
            if chosen == "is sent by its owner":
                self._hand_over(message)

    def _hand_over(self, message: Message) -> None:
        for host in self._simulation.started_hosts:
            if not host.is_dead:
                host.poller.sent(message)


def sources_of(simulation: "Simulation", host: str) -> Sources:
    """The sources of a host. Its clock may be wrong if the clocks of this simulation differ."""
    if not simulation.clocks_differ:
        return simulation.sources
    skew = simulation.choose(f"clock of {host}", list(SKEWS_MS))
    return SkewedSources(simulation, SKEWS_MS[skew])
