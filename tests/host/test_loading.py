"""A run that is taken over while somebody here reads it: what was read before tells nobody anything."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from perdure.core.ids import HostId, RunId
from perdure.core.journal.entry import Entry
from perdure.engine.replay.warm import WarmRun
from perdure.host.catalogue import Catalogue
from perdure.host.loading import Loader
from perdure.host.parking import Parking
from perdure.host.residents import Residents
from perdure.store.records import Run
from perdure.store.store import Store

HERE, THERE = HostId("here"), HostId("there")
RUN = RunId("run")


class Row:
    """As much of a run's row as a load looks at."""

    run_id = RUN
    program = "program"
    version = ""
    closed_at_ms = None
    parked = None

    def __init__(self, owner: HostId, epoch: int) -> None:
        self.owner = owner
        self.epoch = epoch


class SlowStore:
    """Reads what there is at once, and answers when it is told to."""

    def __init__(self) -> None:
        self.row = Row(THERE, 1)
        self.may_answer: list[asyncio.Event] = []

    async def load(self, _: Sequence[RunId]) -> list[tuple[Row, list[Entry]]]:
        row, told = self.row, asyncio.Event()
        self.may_answer.append(told)
        await told.wait()
        return [(row, [])]


class NoParking:
    def leaves_alone(self, _: Run) -> bool:
        return False


class NoCatalogue:
    async def look_for(self, name: str, version: str) -> None:
        pass


class Warm:
    def __init__(self, run: Run) -> None:
        self.run_id = run.run_id
        self.epoch = run.epoch


def loader_of(store: SlowStore) -> tuple[Loader, Residents]:
    residents = Residents(10)

    def replay(run: Run, _: Sequence[Entry]) -> WarmRun:
        return cast("WarmRun", Warm(run))

    parking = cast("Parking", NoParking())
    catalogue = cast("Catalogue", NoCatalogue())
    return Loader(cast("Store", store), HERE, residents, parking, replay, catalogue), residents


async def begun(store: SlowStore, count: int) -> None:
    async with asyncio.timeout(5):
        while len(store.may_answer) < count:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0)


async def test_a_load_that_began_before_a_takeover_is_no_answer_after_it() -> None:
    store = SlowStore()
    loader, residents = loader_of(store)
    before = asyncio.create_task(loader.load(RUN))
    await begun(store, 1)
    store.row = Row(HERE, 2)
    loader.outdate(RUN)
    after = asyncio.create_task(loader.load(RUN))
    store.may_answer[0].set()
    await begun(store, 2)
    store.may_answer[1].set()
    found: list[Any] = list(await asyncio.gather(before, after))
    assert [warm.epoch for warm in found] == [2, 2], "whoever asked before hears of it, too"
    assert found[0] is found[1] is residents.get(RUN)


async def test_those_who_ask_at_the_same_time_share_a_load() -> None:
    store = SlowStore()
    loader, _ = loader_of(store)
    asking = [asyncio.create_task(loader.load(RUN)) for _ in range(3)]
    await begun(store, 1)
    store.may_answer[0].set()
    assert await asyncio.gather(*asking) == [None] * 3, "it is there, and not here"
    assert len(store.may_answer) == 1
