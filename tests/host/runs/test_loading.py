"""A load that began before its host took the run over is outdated, and is repeated."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

from perdure.core.ids import HostId, RunId
from perdure.engine.runs.warm import WarmRun
from perdure.host.context import HostContext
from perdure.host.runs.cache import RunCache
from perdure.host.runs.catalogue import Catalogue
from perdure.host.runs.loading import Loader
from perdure.host.runs.memory import MemoryUse
from perdure.host.runs.parking import Parking
from perdure.store.rows.records import Run, StoredRun

HERE, THERE = HostId("here"), HostId("there")
RUN = RunId("run")


class RunRow:
    """The columns of a run's row that a load reads."""

    run_id = RUN
    program = "program"
    version = ""
    is_over = False
    damage = None
    parked = None

    def __init__(self, owner: HostId, epoch: int) -> None:
        self.owner = owner
        self.epoch = epoch


class SlowStore:
    """Reads its row at once, and returns it when the test sets the event of that read."""

    def __init__(self) -> None:
        self.row = RunRow(THERE, 1)
        self.may_answer: list[asyncio.Event] = []

    async def load_all(self, _: Sequence[RunId]) -> list[StoredRun]:
        row, may_answer = self.row, asyncio.Event()
        self.may_answer.append(may_answer)
        await may_answer.wait()
        return [StoredRun(cast("Run", row), [])]


class NoParking:
    def leaves_alone(self, _: Run) -> bool:
        return False


class NoCatalogue:
    async def find_version(self, name: str, version: str) -> None:
        pass


class Warm:
    def __init__(self, run: Run) -> None:
        self.run_id = run.run_id
        self.epoch = run.epoch
        self.counted_bytes = 0

    def estimated_bytes(self) -> int:
        return 1000


def loader_of(store: SlowStore) -> tuple[Loader, RunCache]:
    cache = RunCache(MemoryUse(10_000, lambda: 0), lambda _: False)
    context = cast("HostContext", SimpleNamespace(store=store, host_id=HERE, payloads=None))

    async def replay(stored: StoredRun) -> WarmRun:
        return cast("WarmRun", Warm(stored.run))

    parking = cast("Parking", NoParking())
    catalogue = cast("Catalogue", NoCatalogue())
    return Loader(context, cache, parking, replay, catalogue), cache


async def wait_for_reads(store: SlowStore, count: int) -> None:
    async with asyncio.timeout(60):
        while len(store.may_answer) < count:  # noqa: ASYNC110 - the store has no event for it
            await asyncio.sleep(0)


async def test_load_that_began_before_a_takeover_is_repeated_after_it() -> None:
    store = SlowStore()
    loader, cache = loader_of(store)
    before = asyncio.create_task(loader.load(RUN))
    await wait_for_reads(store, 1)
    store.row = RunRow(HERE, 2)
    loader.outdate(RUN)
    after = asyncio.create_task(loader.load(RUN))
    store.may_answer[0].set()
    await wait_for_reads(store, 2)
    store.may_answer[1].set()
    found: list[Any] = list(await asyncio.gather(before, after))
    assert [warm.epoch for warm in found] == [2, 2], "the earlier caller gets the new epoch, too"
    assert found[0] is found[1] is cache.get(RUN)


async def test_concurrent_callers_share_one_load() -> None:
    store = SlowStore()
    loader, _ = loader_of(store)
    asking = [asyncio.create_task(loader.load(RUN)) for _ in range(3)]
    await wait_for_reads(store, 1)
    store.may_answer[0].set()
    assert await asyncio.gather(*asking) == [None] * 3, "another host owns the run"
    assert len(store.may_answer) == 1
