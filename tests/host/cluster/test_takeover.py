"""A takeover that is interrupted at any point is completed by the next host."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from perdure import Settings, task, workflow
from perdure.authoring.values.upcaster import reading_old_shapes
from perdure.core.codec import JsonCodec
from perdure.core.hosts import sharing
from perdure.core.ids import HostId
from perdure.core.journal.state import Status
from perdure.host.cluster.takeover import Orphans, Takeover
from perdure.host.cluster.takeover_loop import TakeoverLoop
from perdure.host.host import Host
from perdure.host.runs.batch import RunStart
from perdure.store.rows.hosts import HostScope, NewHost
from perdure.store.store import Store
from perdure.testing.checkers import assert_sound
from perdure.testing.explorer import VirtualSources, memory_store

pytestmark = pytest.mark.asyncio

DEAD, FIRST, SECOND = HostId("dead"), HostId("first"), HostId("second")
RUNS = 5
LIMIT_MS = 10_000
CHANGES = ("take_over", "return_work", "remove_host", "take_run")


@task
async def wait_to_be_taken() -> str:
    await released.wait()
    return "done"


@task(queue="taken")
async def wait_there() -> str:
    await released.wait()
    return "done"


@workflow
async def takes_a_while(is_queued: bool) -> str:
    return await (wait_there if is_queued else wait_to_be_taken)()


released: asyncio.Event


class Died(BaseException):
    """The host died: its own code must not catch this."""


class CrashingStore:
    """A store whose host dies at the n-th change, just before or just after it."""

    def __init__(self, store: Store, dies_at: int | None = None, *, before: bool = False) -> None:
        self._store = store
        self._dies_at = dies_at
        self._before = before
        self.changes = 0

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name not in CHANGES:
            return method

        async def change(*args: Any) -> Any:
            self.changes += 1
            dies = self.changes == self._dies_at
            if dies and self._before:
                raise Died
            answer = await method(*args)
            if dies:
                raise Died
            return answer

        return change


class HeldTakeover(Takeover):
    """A takeover that takes nothing and never ends."""

    async def take_from(self, orphans: Orphans) -> bool:
        await asyncio.Event().wait()
        return bool(orphans)


def host_on(store: Any, name: HostId, sources: VirtualSources) -> Host:
    codec = reading_old_shapes(JsonCodec())
    return Host(store, name, codec, sources, Settings(), ["taken"])


async def leave_behind(store: Store, sources: VirtualSources, count: int = RUNS) -> None:
    """Leave the runs, the claimed task and the row of a dead host."""
    host = host_on(store, DEAD, sources)
    await store.register_host(NewHost(DEAD, LIMIT_MS, (), 0))
    for number in range(count):
        call = takes_a_while(number == 0)
        call.use()
        payload = host.dispatcher.codec.encode(call.arguments)
        await host.dispatcher.start(RunStart(takes_a_while, payload, key=str(number)))
    await host.worker.poll()
    host.kill()


async def watch_and_take(host: Host, store: Any) -> None:
    """Read snapshots until the other hosts count as dead, and take over from them."""
    takeover = Takeover(host.dispatcher, LIMIT_MS, host.runs_taken)
    for now_ms in (0, LIMIT_MS // 2, LIMIT_MS, LIMIT_MS + 1):
        snapshot = await store.host_snapshot(HostScope(host.dispatcher.host_id, ("taken",), (), 0))
        takeover.see(snapshot, now_ms)
        assert await takeover.take(snapshot) is (now_ms > LIMIT_MS)


async def take_over(
    store: Store, name: HostId, sources: VirtualSources, crashing: CrashingStore
) -> bool:
    """Returns whether the host survived the takeover. If so, it resumes all runs, and they end."""
    host = host_on(crashing, name, sources)
    await store.register_host(NewHost(name, LIMIT_MS, (), 0))
    try:
        await watch_and_take(host, crashing)
    except Died:
        host.kill()
        return False
    assert await store.count_open(name) == RUNS
    released.set()
    await host.worker.poll()
    async with asyncio.timeout(60):
        while await store.open_ids(None, 1):
            await host.poller.poll()
            sources.advance(1000)
            await asyncio.sleep(0)
    host.kill()
    return True


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
async def test_interrupted_takeover_is_completed_by_the_next_host(
    before: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Several batches, so that a host dies with a part of the runs.
    monkeypatch.setattr(sharing, "BATCH", 2)
    dies_at = 1
    while True:
        async with memory_store() as store:
            global released  # noqa: PLW0603 - tasks are of the module
            released = asyncio.Event()
            sources = VirtualSources()
            await leave_behind(store, sources)
            crashing = CrashingStore(store, dies_at, before=before)
            lived = await take_over(store, FIRST, sources, crashing)
            if not lived:
                assert await take_over(store, SECOND, sources, CrashingStore(store))
            await assert_all_completed(store, FIRST if lived else SECOND)
        if lived:
            break
        dies_at += 1
    # Three batches of runs, the work, the row.
    assert dies_at > 5


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
async def test_run_taken_over_for_a_caller_by_a_dying_host_is_resumed_by_the_next(
    before: bool,
) -> None:
    async with memory_store() as store:
        global released  # noqa: PLW0603 - tasks are of the module
        released = asyncio.Event()
        sources = VirtualSources()
        await leave_behind(store, sources)
        await store.register_host(NewHost(FIRST, LIMIT_MS, (), 0))
        crashing = CrashingStore(store, 1, before=before)
        host = host_on(crashing, FIRST, sources)
        takeover = HeldTakeover(host.dispatcher, LIMIT_MS, host.runs_taken)
        takeover_loop = TakeoverLoop(host.dispatcher, takeover, lambda: None)
        snapshot = await store.host_snapshot(HostScope(FIRST, ("taken",), (), 0))
        for now_ms in (0, LIMIT_MS // 2, LIMIT_MS, LIMIT_MS + 1):
            takeover.see(snapshot, now_ms)
        takeover_loop.begin(snapshot)
        (run_id,) = await store.open_ids(None, 1)
        run = await store.run(run_id)
        assert run is not None
        with pytest.raises(Died):
            await takeover_loop.take_over_now(run)
        takeover_loop.kill()
        host.kill()
        assert await take_over(store, SECOND, sources, CrashingStore(store))
        await assert_all_completed(store, SECOND)


async def test_host_whose_takeover_a_peer_completed_meanwhile_is_left_alone() -> None:
    async with memory_store() as store:
        host = host_on(store, FIRST, VirtualSources())
        for name in (FIRST, DEAD):
            await store.register_host(NewHost(name, LIMIT_MS, (), 0))
        scope = HostScope(FIRST, (), (), 0)
        takeover = Takeover(host.dispatcher, LIMIT_MS, host.runs_taken)
        first = await store.host_snapshot(scope)
        takeover.see(first, 0)
        await store.remove_host(DEAD)
        takeover.see(await store.host_snapshot(scope), LIMIT_MS // 2)  # from a later heartbeat
        assert await takeover.take(first) is False
        host.kill()


@pytest.mark.parametrize("former", [DEAD, None], ids=["of a dead host", "unowned"])
@pytest.mark.parametrize("are_together", [True, False], ids=["together", "one after the other"])
async def test_orphans_are_spread_evenly_over_the_living_hosts(
    former: HostId | None, are_together: bool
) -> None:
    """300 runs over 3 hosts: none gets more than 1.3 times its share, whichever of them is the first."""
    async with memory_store() as store:
        global released  # noqa: PLW0603 - tasks are of the module
        released = asyncio.Event()
        sources = VirtualSources()
        await leave_behind(store, sources, 300)
        if former is None:
            await store.release_runs(DEAD)
        hosts = [host_on(store, HostId(name), sources) for name in ("first", "second", "third")]
        for host in hosts:
            await store.register_host(NewHost(host.dispatcher.host_id, LIMIT_MS, (), 0))
        takeovers = [Takeover(host.dispatcher, LIMIT_MS, host.runs_taken) for host in hosts]
        orphans = []
        for host, takeover in zip(hosts, takeovers, strict=True):
            host.poller.kill()
            orphans.append(await judged(host, takeover, store, former))
        taking = [each.take_from(them) for each, them in zip(takeovers, orphans, strict=True)]
        if are_together:
            await asyncio.gather(*taking)
        else:
            for take in taking:
                await take
        counts = [await store.count_open(host.dispatcher.host_id) for host in hosts]
        assert sum(counts) == 300
        assert max(counts) <= 1.3 * 100, counts
        for host in hosts:
            host.kill()


async def test_hosts_that_others_leave_unowned_runs_to_stop_sharing_them() -> None:
    """The others may lack the programs: then a run that is started by a client must not wait for them each time."""
    async with memory_store() as store:
        global released  # noqa: PLW0603 - tasks are of the module
        released = asyncio.Event()
        sources = VirtualSources()
        await leave_behind(store, sources, 4)
        await store.release_runs(DEAD)
        host = host_on(store, FIRST, sources)
        for name in (FIRST, SECOND):
            await store.register_host(NewHost(name, LIMIT_MS, (), 0))
        takeover = Takeover(host.dispatcher, LIMIT_MS, host.runs_taken)
        orphans = await judged(host, takeover, store, None)
        left = []
        for _ in range(sharing.FAIR_LOOKS + 1):
            await takeover.take_from(orphans)
            left.append(await store.count_open(None))
        assert left == [*[2] * sharing.FAIR_LOOKS, 0]
        await store.release_runs(FIRST)
        await takeover.take_from(orphans)
        assert await store.count_open(None) == 0
        host.kill()


async def judged(host: Host, takeover: Takeover, store: Store, former: HostId | None) -> Orphans:
    """What a host sees when the dead host has been silent for long enough, or has released its runs."""
    name = host.dispatcher.host_id
    scope = HostScope(name, ("taken",), tuple(host.dispatcher.programs.names()), 0)
    snapshot = await store.host_snapshot(scope)
    if former is None:
        await store.remove_host(DEAD)
        snapshot = await store.host_snapshot(scope)
        takeover.see(snapshot, 0)
        return takeover.judge(snapshot)
    # The others are alive: their beats continue.
    for now_ms in (0, LIMIT_MS // 2, LIMIT_MS, LIMIT_MS + 1):
        peers = [
            peer if peer.host == former else peer._replace(beat=now_ms) for peer in snapshot.peers
        ]
        takeover.see(msgspec.structs.replace(snapshot, peers=tuple(peers)), now_ms)
    return takeover.judge(snapshot)


async def assert_all_completed(store: Store, successor: HostId) -> None:
    """Every run completed under a later epoch than the dead host's, nothing is claimed, and dead hosts have no row."""
    runs = [run async for run in _runs(store)]
    assert [run.status for run in runs] == [Status.COMPLETED] * RUNS
    assert all(run.epoch > 1 for run in runs)
    snapshot = await store.host_snapshot(HostScope(successor, ("taken",), (), 0))
    assert snapshot.holders == frozenset()
    assert [peer.host for peer in snapshot.peers] == [successor]
    assert snapshot.next_work_ms is None
    await assert_sound(store)


async def _runs(store: Store) -> AsyncIterator[Any]:
    async for books in store.books():
        yield await store.run(books.run_id)
