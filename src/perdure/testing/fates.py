"""The parts of a host whose fate an explorer decides, and a host that has none."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from perdure.core.ids import HostId
from perdure.engine.replay.warm import WarmRun
from perdure.host.bodies import Bodies
from perdure.host.body import Body
from perdure.host.hosting import Hosting
from perdure.host.residents import Residents
from perdure.host.threads import Threads

if TYPE_CHECKING:
    from perdure.testing.workflows import Universe


class FatefulResidents(Residents):
    """Runs that may leave memory at each wait."""

    def __init__(self, universe: "Universe", limit: int) -> None:
        super().__init__(limit)
        self._universe = universe
        self._is_fateful = limit > 0

    def excess(self) -> list[WarmRun]:
        victims = super().excess()
        idle = [run for run in self if not run.in_flight]
        if not self._is_fateful or not idle:
            return victims
        self._universe.waits += 1
        fate = self._universe.choose(f"wait {self._universe.waits}", ["stays warm", "is evicted"])
        return idle if fate == "is evicted" else victims


class NoThreads(Threads):
    """Runs what would go to a thread where it stands, so that a schedule repeats itself."""

    def submit(self, job: Callable[[], Any]) -> asyncio.Future[Any]:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        answer.set_result(job())
        return answer


class WatchedBodies(Bodies):
    """Bodies whose beginning is checked against what is durable."""

    def __init__(self, universe: "Universe", *args: Any) -> None:
        super().__init__(*args)
        self._threads = NoThreads(1)
        self._universe = universe

    def start(self, body: Body) -> None:
        self._universe.began(body)
        super().start(body)

    @property
    def lasting(self) -> list[str]:
        """What is executed now, for people."""
        bodies = (body for steps in self._bodies.values() for body in steps.values())
        return [
            f"{body.task.name} ({body.info.step})"
            for body in bodies
            if body.life is not None and not body.is_reporting
        ]


class Outside(Hosting):
    """Whoever sends signals: it has the store, and no runs."""

    def __init__(self, universe: "Universe") -> None:
        super().__init__(
            universe.store,
            HostId("outside"),
            universe.codec,
            universe.sources,
            universe.settings,
        )
