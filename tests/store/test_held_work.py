"""Held work: it stays on its queue, and no host claims it."""

import pytest

from perdure.store.commit.bundle import Bundle
from perdure.store.store import Store
from tests.store.builders import HOST, NOW, OTHER_HOST, Driven, begun

pytestmark = pytest.mark.asyncio

LEASE_MS = 1000


def _holding(run: Driven, *, held: bool) -> Bundle:
    bundle = Bundle()
    bundle.hold_work(run.fence, held=held)
    return bundle


async def _with_work(store: Store, *steps: str) -> Driven:
    run = await begun(store)
    bundle = Bundle()
    for step in steps:
        bundle.put_work(run.fence, run.work(step))
    await store.commit(bundle)
    return run


async def _claimed(store: Store, now_ms: int = NOW) -> list[str]:
    claims = await store.claim_work(OTHER_HOST, ["gpu"], "token", now_ms, LEASE_MS, 10)
    return [claim.work.step for claim in claims]


async def test_held_work_is_not_claimed_until_it_is_released(store: Store) -> None:
    run, other = await _with_work(store, "root.1"), await _with_work(store, "root.2")
    await store.commit(_holding(run, held=True))
    assert await _claimed(store) == ["root.2"]
    await store.commit(_holding(run, held=False))
    assert await _claimed(store) == ["root.1"]
    assert await store.queued_work(other.run_id)


async def test_held_work_wakes_no_host(store: Store) -> None:
    run = await _with_work(store, "root.1")
    await store.commit(_holding(run, held=True))
    assert await store.next_work(["gpu"]) is None


async def test_work_put_by_the_bundle_that_holds_is_held(store: Store) -> None:
    run = await begun(store)
    bundle = Bundle()
    bundle.hold_work(run.fence, held=True)
    bundle.put_work(run.fence, run.work("root.1"))
    await store.commit(bundle)
    assert await _claimed(store) == []


async def test_claim_under_way_finishes_while_its_work_is_held(store: Store) -> None:
    run = await _with_work(store, "root.1")
    (claim,) = await store.claim_work(HOST, ["gpu"], "first", NOW, LEASE_MS, 10)
    await store.commit(_holding(run, held=True))
    assert await store.renew_work([claim], NOW + 2 * LEASE_MS) == [claim]
    bundle = Bundle()
    bundle.finish_work(run.run_id, claim.work.step, claim.token)
    await store.commit(bundle)
    assert not await store.queued_work(run.run_id)


async def test_lease_that_ends_while_work_is_held_is_not_taken_over(store: Store) -> None:
    run = await _with_work(store, "root.1")
    await store.claim_work(HOST, ["gpu"], "first", NOW, LEASE_MS, 10)
    await store.commit(_holding(run, held=True))
    late = NOW + 2 * LEASE_MS
    assert await _claimed(store, late) == []
    await store.commit(_holding(run, held=False))
    (claim,) = await store.claim_work(OTHER_HOST, ["gpu"], "second", late, LEASE_MS, 10)
    assert claim.claims == 2  # the first claim still counts
