"""Shared by tests of relays: a bus that records what it gets, hosts that die, and what must hold at the end."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from perdure.core.codec import JsonCodec
from perdure.core.ids import HostId, RunId
from perdure.core.runs.contract_event import ContractEvent
from perdure.host.bus.bus import EventBus
from perdure.host.bus.enrolling import LEASE_MS
from perdure.host.context import HostContext
from perdure.host.relays.relay import Relay
from perdure.host.services import NO_SERVICES
from perdure.host.settings import Settings
from perdure.store.bus_table import PublicationKey
from perdure.store.rows.records import Enrolment
from perdure.store.store import Store
from perdure.testing.explorer import VirtualSources
from tests.store.builders import Driven, raw, together

BUS = "recorder"
ENROLLED = (Enrolment(BUS),)


class Recorder(EventBus):
    """Records events. `fails` decides about each whether it raises instead."""

    def __init__(self, **options: Any) -> None:
        super().__init__(BUS, options)  # type: ignore[arg-type]
        self.got: list[ContractEvent] = []
        self.fails: Callable[[ContractEvent], Exception | None] = lambda _: None
        self.tried = 0
        self.passed: PublicationKey | None = None
        """Where the sweep of a seeded bug is."""

    async def publish(self, event: ContractEvent) -> None:
        self.tried += 1
        error = self.fails(event)
        if error is not None:
            raise error
        self.got.append(event)

    def seqs(self, run_id: RunId) -> list[int]:
        """The sequence numbers of a run's events, as they came."""
        return [event.seq for event in self.got if event.run_id == run_id]

    def first_seqs(self, run_id: RunId) -> list[int]:
        """The same, each number where it came first."""
        return list(dict.fromkeys(self.seqs(run_id)))


class Listener:
    """Takes what the parts of a host report. Background work must not fail."""

    def __init__(self) -> None:
        self.failures: list[BaseException] = []

    def failed(self, error: BaseException) -> None:
        self.failures.append(error)

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


def context_on(store: Any, sources: VirtualSources, name: str = "host") -> HostContext:
    listener: Any = Listener()
    parts = JsonCodec(), sources, Settings(), listener, NO_SERVICES
    return HostContext(store, HostId(name), *parts)


class DyingBuses:
    """The buses of a store, for a relay that may die before or after each write."""

    def __init__(self, host: "DyingHost") -> None:
        self._host = host

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._host.store.buses, name)
        if name not in ("claim", "advance"):
            return method

        async def write(*args: Any) -> Any:
            return await self._host.do(name, lambda: method(*args))

        return write


class DyingBus(EventBus):
    """The recorder, for a relay that may die before or after each event."""

    def __init__(self, host: "DyingHost", recorder: Recorder) -> None:
        super().__init__(recorder.name, {"concurrency": 1})
        self._host = host
        self.recorder = recorder

    async def publish(self, event: ContractEvent) -> None:
        what = f"publish {event.seq}"
        await self._host.do(what, lambda: self.recorder.publish(event))


class DyingHost:
    """A relay whose host may die at each write and each event: then nothing of it continues."""

    def __init__(
        self,
        store: Store,
        sources: VirtualSources,
        recorder: Recorder,
        choose: Callable[[str, Sequence[str]], str],
        kind: type[Relay] = Relay,
    ) -> None:
        self.store = store
        self._choose = choose
        self.is_dead = asyncio.Event()
        self.context = context_on(_StoreOf(self), sources)
        self.relay = kind(self.context, DyingBus(self, recorder))

    async def do(self, what: str, act: Callable[[], Any]) -> Any:
        fault = self._choose(what, ["done", "crash before", "crash after"])
        if fault == "crash before":
            await self._die()
        done = await act()
        if fault == "crash after":
            await self._die()
        return done

    async def _die(self) -> None:
        self.is_dead.set()
        await asyncio.get_running_loop().create_future()

    async def work(self) -> None:
        """Publish all that may be published now, or die."""
        working = asyncio.ensure_future(self.relay.work())
        dying = asyncio.ensure_future(self.is_dead.wait())
        await asyncio.wait({working, dying}, return_when=asyncio.FIRST_COMPLETED)
        dying.cancel()
        if self.is_dead.is_set():
            working.cancel()
            self.relay.kill()
            await asyncio.wait({working})
        else:
            await working


class _StoreOf:
    def __init__(self, host: DyingHost) -> None:
        self._host = host
        self.buses = DyingBuses(host)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._host.store, name)


async def finish_publishing(relay: Relay, sources: VirtualSources) -> None:
    """Let leases of dead relays end, and publish the rest."""
    sources.advance(LEASE_MS + 1)
    await relay.work()


async def enrolled(store: Store, **fields: Any) -> Driven:
    """A run that is published to the bus, at its first step."""
    run = Driven(**fields)
    await store.commit(together(run.start(enrolments=ENROLLED), run.first_step()))
    return run


async def marks(store: Store) -> list[tuple[str, str, int]]:
    """The publications: run, replay and the next entry."""
    rows = await raw(store, "SELECT run_id, replay, seq FROM {}publication ORDER BY run_id, replay")
    return [(str(run_id), str(replay), int(seq)) for run_id, replay, seq in rows]


async def assert_all_published(store: Store, recorder: Recorder, run_ids: Sequence[RunId]) -> None:
    """Every event of each run came, first in order; of ended runs no mark is left, others are at the end."""
    left = {run_id: seq for run_id, _, seq in await marks(store)}
    for run_id in run_ids:
        run = await store.run(run_id)
        assert run is not None
        assert recorder.first_seqs(run_id) == list(range(run.seq)), "an event is lost or too early"
        assert left.get(run_id, run.seq) == run.seq, "a mark is behind"
        assert (run_id in left) is (run.closed_at_ms is None), "a mark is left, or missing"
    assert len({event.event_id for event in recorder.got}) == len(
        {(event.run_id, event.seq) for event in recorder.got}
    )
