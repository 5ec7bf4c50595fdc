"""A takeover that is cut short at any point: whoever looks next completes it, and nothing is left behind."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from perdure import Settings, task, workflow
from perdure.authoring.upcaster import reading_old_shapes
from perdure.core.codec import JsonCodec
from perdure.core.hosts import sharing
from perdure.core.ids import HostId
from perdure.core.journal.state import Status
from perdure.host.batch import Start
from perdure.host.census import Census
from perdure.host.hosting import Hosting
from perdure.store.hosts import NewHost, Scope
from perdure.store.store import Store
from perdure.testing.checkers import assert_sound
from perdure.testing.explorer import VirtualSources, memory_store

pytestmark = pytest.mark.asyncio

DEAD, FIRST, SECOND = HostId("dead"), HostId("first"), HostId("second")
RUNS = 5
LIMIT_MS = 10_000
CHANGES = ("take_over", "return_work", "remove_host")


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
    """The host is gone: nothing of it may catch this."""


class MortalStore:
    """A store whose host dies at a change of that number, just before it or just after it."""

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


def hosting_on(store: Any, name: HostId, sources: VirtualSources) -> Hosting:
    codec = reading_old_shapes(JsonCodec())
    return Hosting(store, name, codec, sources, Settings(), ["taken"])


async def leave_behind(store: Store, sources: VirtualSources) -> None:
    """A host that died with runs of its own, a task that it had claimed, and its row."""
    hosting = hosting_on(store, DEAD, sources)
    await store.register_host(NewHost(DEAD, LIMIT_MS, (), 0))
    for number in range(RUNS):
        call = takes_a_while(number == 0)
        call.use()
        payload = hosting.host.codec.encode(call.arguments)
        await hosting.host.start(Start(takes_a_while, payload, key=str(number)))
    await hosting.worker.poll()
    hosting.kill()


async def look(hosting: Hosting, store: Any) -> None:
    """Look as often as it takes to see that the others are gone, and take what they had."""
    census = Census(hosting.host, LIMIT_MS)
    for now_ms in (0, LIMIT_MS // 2, LIMIT_MS, LIMIT_MS + 1):
        glance = await store.glance(Scope(hosting.host.host_id, ("taken",), (), 0))
        census.see(glance, now_ms)
        assert await census.take(glance) is (now_ms > LIMIT_MS)


async def take_over(
    store: Store, name: HostId, sources: VirtualSources, mortal: MortalStore
) -> bool:
    """Whether the host lived to the end of it. If so, it goes on with all runs, and they end."""
    hosting = hosting_on(mortal, name, sources)
    await store.register_host(NewHost(name, LIMIT_MS, (), 0))
    try:
        await look(hosting, mortal)
    except Died:
        hosting.kill()
        return False
    assert await store.count_open(name) == RUNS
    released.set()
    await hosting.worker.poll()
    async with asyncio.timeout(10):
        while await store.open_ids(None, 1):
            await hosting.poller.poll()
            sources.advance(1000)
            await asyncio.sleep(0)
    hosting.kill()
    return True


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
async def test_a_takeover_that_is_cut_short_is_completed_by_the_next_host(
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
            mortal = MortalStore(store, dies_at, before=before)
            lived = await take_over(store, FIRST, sources, mortal)
            if not lived:
                assert await take_over(store, SECOND, sources, MortalStore(store))
            await assert_all_went_on(store, FIRST if lived else SECOND)
        if lived:
            break
        dies_at += 1
    # Three batches of runs, the work, the row.
    assert dies_at > 5


async def assert_all_went_on(store: Store, heir: HostId) -> None:
    """Every run ended well, under a later epoch than the dead host's; nothing is claimed, and the dead have no row."""
    runs = [run async for run in _runs(store)]
    assert [run.status for run in runs] == [Status.COMPLETED] * RUNS
    assert all(run.epoch > 1 for run in runs)
    glance = await store.glance(Scope(heir, ("taken",), (), 0))
    assert glance.holders == frozenset()
    assert [peer.host for peer in glance.peers] == [heir]
    assert glance.next_work_ms is None
    await assert_sound(store)


async def _runs(store: Store) -> AsyncIterator[Any]:
    async for books in store.books():
        yield await store.run(books.run_id)
