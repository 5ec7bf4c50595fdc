"""Parked runs, and the reasons."""

import asyncio

import pytest

from perdure.core.errors import StaleFence, UnknownRun
from perdure.store.commit.bundle import Bundle
from perdure.store.store import Store
from tests.store.builders import HOST, OTHER_HOST, Driven, begun, contents, some_run_id, together

pytestmark = pytest.mark.asyncio

WHY = "the program diverged at entry 7 \u20ac"


def parking(run: Driven, reason: str | None) -> Bundle:
    bundle = Bundle()
    bundle.park(run.fence, reason)
    return bundle


async def parked(store: Store, run: Driven) -> str | None:
    found = await store.run(run.run_id)
    assert found is not None
    return found.parked


async def test_a_run_is_parked_and_unparked(store: Store) -> None:
    run, other = await begun(store), await begun(store)
    assert await parked(store, run) is None
    await store.commit(parking(run, WHY))
    assert (await parked(store, run), await parked(store, other)) == (WHY, None)
    await store.commit(parking(run, None))
    assert await parked(store, run) is None


async def test_every_read_of_a_run_returns_why_it_is_parked(store: Store) -> None:
    run = Driven(key="order-42")
    await store.commit(together(run.start(), parking(run, WHY)))
    by_key = await store.run_by_key("", "checkout", "order-42")
    assert by_key is not None
    assert by_key.parked == WHY
    assert [found.parked for found in await store.open_runs(HOST)] == [WHY]
    assert [found.parked for found, _ in await store.load([run.run_id])] == [WHY]
    assert [found.parked for found in await store.take_over(HOST, OTHER_HOST, 1)] == [WHY]
    await store.release_runs(OTHER_HOST)
    assert [found.parked for found in await store.open_runs(None)] == [WHY]
    assert [found.parked for found in await store.claim_runs(HOST, 1)] == [WHY]


async def test_a_stale_owner_parks_nothing(store: Store) -> None:
    run = await begun(store)
    await store.take_over(HOST, OTHER_HOST, 10)
    before = await contents(store)
    with pytest.raises(StaleFence):
        await store.commit(parking(run, WHY))
    assert await contents(store) == before


async def test_an_unknown_run_is_not_parked(store: Store) -> None:
    with pytest.raises(UnknownRun):
        await store.commit(parking(Driven(run_id=some_run_id()), WHY))


async def test_a_parked_run_keeps_its_books_and_can_advance(store: Store) -> None:
    run = await begun(store)
    before = await store.run(run.run_id)
    await store.commit(parking(run, WHY))
    await store.commit(parking(run, None))
    assert await store.run(run.run_id) == before
    await store.commit(run.step())
    assert await parked(store, run) is None


async def test_steps_leave_a_parked_run_parked(store: Store) -> None:
    run = await begun(store)
    await store.commit(together(run.step(), parking(run, WHY)))
    await store.commit(run.step())
    assert await parked(store, run) == WHY


async def test_the_last_park_or_unpark_of_a_group_counts(store: Store) -> None:
    first, second = await begun(store), await begun(store)
    words = [
        parking(first, "one"),
        parking(second, WHY),
        parking(first, None),
        parking(first, "two"),
        parking(second, None),
    ]
    await asyncio.gather(*map(store.commit, words))
    assert (await parked(store, first), await parked(store, second)) == ("two", None)
