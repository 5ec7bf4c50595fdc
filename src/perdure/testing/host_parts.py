"""Parts of a host that the explorer controls, and the host that sends messages from outside."""

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from perdure.core.ids import HostId
from perdure.engine.sources import Sources
from perdure.host.cluster.hints import Hints
from perdure.host.context import HostContext
from perdure.host.host import Host
from perdure.host.runs.cache import IsAboutToContinue, RunCache
from perdure.host.runs.memory import MemoryUse
from perdure.host.tasks.attempt import Attempt
from perdure.host.tasks.executor import Executor, ExecutorOwner
from perdure.host.tasks.gate import Gate
from perdure.host.tasks.published import Publisher
from perdure.host.tasks.streams import StreamWriter
from perdure.host.tasks.threads import Threads
from perdure.testing.admission import AbsentAdmissions
from perdure.testing.simulated_hints import SimulatedHints, channel_in
from perdure.testing.skewed_clocks import SenderSources, SenderStore

if TYPE_CHECKING:
    from perdure.testing.simulation import Simulation


class FaultyRunCache(RunCache):
    """A run cache that may evict all idle runs at each wait."""

    def __init__(
        self,
        simulation: "Simulation",
        use: MemoryUse,
        is_about_to_continue: IsAboutToContinue,
    ) -> None:
        super().__init__(use, is_about_to_continue)
        self._simulation = simulation
        self._is_faulty = use.budget_bytes > 0

    def trim(self) -> None:
        super().trim()
        idle = [run for run in self if not run.is_pinned]
        if not self._is_faulty or not idle:
            return
        self._simulation.waits += 1
        wait = f"wait {self._simulation.waits}"
        if self._simulation.choose(wait, ["stays warm", "is evicted"]) == "is evicted":
            for run in idle:
                self.evict(run)


class InlineThreads(Threads):
    """Runs jobs in the event loop's thread, so that a schedule is repeatable."""

    def submit(self, job: Callable[[], Any]) -> asyncio.Future[Any]:
        result: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        result.set_result(job())
        return result


class WatchedExecutor(Executor):
    """Reports each attempt to the simulation, which checks it against the durable journal."""

    def __init__(
        self,
        simulation: "Simulation",
        context: HostContext,
        owner: ExecutorOwner,
        gate: Gate,
        publisher: Publisher,
        streams: StreamWriter,
    ) -> None:
        super().__init__(context, owner, gate, publisher, streams, InlineThreads(1))
        self._simulation = simulation

    def start(self, attempt: Attempt) -> None:
        store: Any = self._context.store
        self._simulation.attempt_began(attempt, has_lost_runs=store.has_lost_runs)
        super().start(attempt)

    @property
    def executing(self) -> list[str]:
        """The attempts that are executing now, as "task (step)"."""
        return [f"{attempt.task.name} ({attempt.info.step})" for attempt in self._executing()]

    @property
    def is_executing(self) -> bool:
        return any(True for _ in self._executing())

    def _executing(self) -> Iterator[Attempt]:
        attempts = (attempt for steps in self._attempts.values() for attempt in steps.values())
        return (each for each in attempts if each.runner is not None and not each.is_reporting)


class OutsideHost(Host):
    """The host behind the script's handle: it sends messages to the store, and owns no runs."""

    def __init__(self, simulation: "Simulation") -> None:
        store: Any = simulation.store
        sources: Sources = simulation.sources
        if simulation.clocks_differ:
            store, sources = SenderStore(simulation), SenderSources(simulation)
        self._simulation = simulation
        super().__init__(store, HostId("outside"), simulation.codec, sources, simulation.settings)

    def _make_hints(self) -> Hints:
        return Hints(self.context, self, assumes_hosts=True)

    def _make_admissions(self) -> AbsentAdmissions:
        return AbsentAdmissions(self.dispatcher, self._owner)

    def _owner(self) -> None:
        """It owns no run."""

    def _make_hint_channel(self) -> SimulatedHints | None:
        return channel_in(self._simulation, self.context.host_id, self.hints.receive)

    async def open_hints(self) -> None:
        """Send hints of what it sends, if the simulation has them, as an engine in another process does."""
        await self.hints.open(self._make_hint_channel())
