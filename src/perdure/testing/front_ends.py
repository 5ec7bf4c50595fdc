"""Front ends of an exploration: they start the run and send to it, and no host of theirs advances it.

The run is unowned until a host claims it. A front end may die before or after its commit; its caller then tries again
at another one. A message may be sent again by a caller that missed the answer. A host may lack the program.
"""

import asyncio
from collections.abc import Collection, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from perdure.authoring.program import Program
from perdure.core.hosts.watch import Peer
from perdure.core.ids import HostId, RunId
from perdure.engine.known_programs import KnownPrograms
from perdure.host.front_end import FrontEnd
from perdure.host.runs.batch import RunStart
from perdure.store.commit.bundle import Bundle
from perdure.store.rows.hosts import HostSnapshot
from perdure.testing.crashing_store import CrashingStore

if TYPE_CHECKING:
    from perdure.testing.explored_host import ExploredHost
    from perdure.testing.simulation import Simulation

T = TypeVar("T")

LACKS = "lacks the program"

ALWAYS_STALE = -1
"""A host with this threshold is dead at the first look."""

UNOWNED = HostSnapshot((), frozenset(), True, None, None)
"""What a host reads when there are unowned runs."""


async def survive(work: Coroutine[Any, Any, T], death: asyncio.Future[None]) -> T | None:
    """The result of `work`, or `None` if the process dies before `work` ends."""
    task = asyncio.ensure_future(work)
    either: list[asyncio.Future[Any]] = [task, death]
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait([task])
    return None


async def start_by_front_end(simulation: "Simulation", start: RunStart) -> RunId | None:
    """Start the run through a front end of its own; `None` if that dies. Raises `RunExists`."""
    name = HostId(f"front-end-{simulation.commits + 1}")
    crashing = CrashingStore(simulation, name)
    store: Any = crashing
    front = FrontEnd(store, name, simulation.codec, simulation.sources, simulation.settings)
    try:
        return await survive(front.begin_run(start), crashing.death)
    finally:
        front.kill()


def sending_front_end(simulation: "Simulation") -> FrontEnd:
    """The front end behind the script's handle."""
    store: Any = ResendingStore(simulation)
    sources, settings = simulation.sources, simulation.settings
    return FrontEnd(store, HostId("sender"), simulation.codec, sources, settings)


class ResendingStore:
    """The store of the sender, whose caller may send a message again."""

    def __init__(self, simulation: "Simulation") -> None:
        self._simulation = simulation
        self._sent = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._simulation.store, name)

    async def commit(self, bundle: Bundle) -> None:
        simulation = self._simulation
        await simulation.store.commit(bundle)
        self._sent += 1
        options = ["is sent once", "is sent again at once", "is sent again later"]
        fate = simulation.choose(f"message {self._sent}", options)
        if fate == "is sent again at once":
            await simulation.store.commit(bundle)
        elif fate == "is sent again later":
            simulation.to_send_again.append(bundle)


async def send_again(simulation: "Simulation", *, is_end: bool = False) -> None:
    """Send messages again that the run has taken in, or all at the end."""
    for bundle in [*simulation.to_send_again]:
        if is_end or not await _is_waiting(simulation, bundle):
            simulation.to_send_again.remove(bundle)
            await simulation.store.commit(bundle)


async def _is_waiting(simulation: "Simulation", bundle: Bundle) -> bool:
    """Whether a message of the bundle is still in the store."""
    for message in bundle.messages:
        found = await simulation.store.messages(message.run_id)
        if any(waiting.guid == message.guid for waiting, _, _ in found):
            return True
    return False


class FewPrograms(KnownPrograms):
    """The programs of a host whose process has not imported some of them."""

    def __init__(self, lacking: Collection[str]) -> None:
        super().__init__()
        self._lacking = lacking

    def find(
        self, name: str, version: str | None = None, digest: str | None = None
    ) -> Program[..., Any] | None:
        return None if name in self._lacking else super().find(name, version, digest)

    def names(self) -> list[str]:
        return [name for name in super().names() if name not in self._lacking]


def programs_of(simulation: "Simulation", host: HostId) -> KnownPrograms:
    """The programs of a new host. One host of a schedule may lack those of the exploration."""
    if simulation.explored_program is None:
        return KnownPrograms()
    fate = simulation.choose(host, ["has the program", LACKS])
    return FewPrograms({simulation.explored_program}) if fate == LACKS else KnownPrograms()


async def ask_for_runs_of(host: "ExploredHost", dead: HostId) -> None:
    """Callers ask this host for all runs of a dead one while their takeover is under way, before it has begun."""
    simulation = host.simulation
    silent = HostSnapshot((Peer(dead, 0, ALWAYS_STALE),), frozenset({dead}), False, None, None)
    host.takeover.see(silent, 0)
    host.crashing_store.may_claim.clear()
    host.takeovers.begin(silent)
    for run in await host.context.store.runs(sorted(simulation.open)):
        if run.owner == dead:
            await host.takeovers.take_over_now(run)
    host.crashing_store.may_claim.set()
    await host.takeovers.wait()


async def ask_first(host: "ExploredHost") -> None:
    """A caller may ask this host for an unowned run while the takeover of such runs is under way."""
    simulation, store = host.simulation, host.context.store
    unowned = [
        run
        for run in await store.runs(sorted(simulation.open))
        if run.owner is None and run.program in host.dispatcher.programs.names()
    ]
    if not unowned:
        return
    options = ["are claimed together", "are asked for first"]
    if simulation.choose(f"{len(unowned)} unowned runs", options) == "are asked for first":
        host.crashing_store.may_claim.clear()
        host.takeovers.begin(UNOWNED)
        for run in unowned:
            await host.takeovers.take_over_now(run)
        host.crashing_store.may_claim.set()
        await host.takeovers.wait()
