import asyncio

import pytest

from perdure.core.errors import (
    BundleRefused,
    CommitRejected,
    RunExists,
    StaleFence,
    StaleToken,
    UnknownRun,
)
from perdure.core.journal import events as e
from perdure.core.ledger import AccountId
from perdure.store.commit.bundle import Bundle
from perdure.store.commit.fence import Fence
from perdure.store.sqlite.store import SqliteStore
from perdure.store.store import Store
from tests.store.builders import (
    HOST,
    NOW,
    OTHER_HOST,
    Driven,
    Meter,
    begun,
    raw,
    sending,
    together,
)

pytestmark = pytest.mark.asyncio


async def submit(store: Store, *bundles: Bundle) -> list[type[BaseException] | None]:
    """The outcome of each bundle, all submitted before the first is written: one group."""
    outcomes = await asyncio.gather(*map(store.commit, bundles), return_exceptions=True)
    for outcome in outcomes:
        assert outcome is None or isinstance(outcome, CommitRejected)
    return [None if outcome is None else type(outcome) for outcome in outcomes]


async def test_bundles_submitted_together_share_one_commit(store: Store) -> None:
    runs = [await begun(store) for _ in range(20)]
    meter = await Meter.of(store)
    assert await submit(store, *(run.step() for run in runs)) == [None] * 20
    assert meter.commits == 1


async def test_a_stale_epoch_is_rejected_alone(store: Store) -> None:
    zombie, alive = await begun(store), await begun(store, owner=OTHER_HOST)
    await store.take_over(HOST, OTHER_HOST, 10)
    meter = await Meter.of(store)
    outcomes = await submit(
        store,
        alive.step(),
        together(zombie.step(), sending(alive.message("zombie's"))),
        alive.step(),
    )
    assert outcomes == [None, StaleFence, None]
    assert meter.commits == 1
    assert await store.messages(alive.run_id) == []


def tries(store: Store) -> int:
    """Postgres writes a small group in one statement, and again without the bundles that do not fit."""
    return 1 if isinstance(store, SqliteStore) else 2


async def test_a_stale_sequence_is_rejected_alone(store: Store) -> None:
    run, other = await begun(store), await begun(store)
    twin = await run.reload(store)
    await store.commit(twin.step())
    meter = await Meter.of(store)
    assert await submit(store, run.step(), other.step()) == [StaleFence, None]
    assert meter.commits == tries(store)
    await store.commit(twin.step())


async def test_a_stale_semaphore_is_rejected_alone(store: Store, tampering: None) -> None:
    run, other = await begun(store), await begun(store)
    await raw(store, f"UPDATE {{}}run SET semaphore = 7 WHERE id = '{run.run_id}'")
    meter = await Meter.of(store)
    assert await submit(store, run.step(), other.step()) == [StaleFence, None]
    assert meter.commits == tries(store)
    found = await store.run(run.run_id)
    assert found is not None
    assert (found.seq, found.semaphore) == (4, 7)


async def test_an_unknown_run_is_rejected_alone(store: Store) -> None:
    ghost, other = Driven(), await begun(store)
    ghost.start()
    assert await submit(store, ghost.first_step(), other.step()) == [UnknownRun, None]


async def test_a_row_that_the_database_refuses_rejects_its_bundle_alone(store: Store) -> None:
    runs = [await begun(store) for _ in range(5)]
    wrong = runs[2].append(e.Posted("note", ()))
    wrong.postings[AccountId("step:root.7")] = -1
    bad = Bundle()
    bad.append(runs[2].fence, wrong)
    bundles = [bad if run is runs[2] else run.step() for run in runs]
    assert await submit(store, *bundles) == [None, None, BundleRefused, None, None]


async def test_a_rejected_bundle_rejects_every_later_one_of_its_run(store: Store) -> None:
    run, other = await begun(store), await begun(store)
    twin = await run.reload(store)
    await store.commit(twin.step())
    bundles = [run.step(), other.step(), run.step(), run.step()]
    assert await submit(store, *bundles) == [StaleFence, None, StaleFence, StaleFence]
    assert run.fence.broken
    with pytest.raises(StaleFence) as broken:
        await store.commit(run.finish())
    assert "earlier bundle" in broken.value.what


async def test_a_bundle_that_would_fit_is_rejected_under_a_broken_fence(store: Store) -> None:
    run = await begun(store)
    await store.commit(sending(run.message("a")))
    run.fence.broken = True
    bundle = Bundle()
    bundle.acknowledge(run.fence, run.guid("a"))
    with pytest.raises(StaleFence):
        await store.commit(bundle)
    assert len(await store.messages(run.run_id)) == 1


async def test_a_run_that_is_loaded_again_advances_under_a_new_fence(store: Store) -> None:
    run = await begun(store)
    twin = await run.reload(store)
    await store.commit(twin.step())
    with pytest.raises(StaleFence):
        await store.commit(run.step())
    again = await run.reload(store)
    await store.commit(again.step())
    await store.commit(again.finish())


async def test_bundles_of_one_run_chain_within_a_group(store: Store) -> None:
    run = await begun(store)
    meter = await Meter.of(store)
    assert await submit(store, run.step(), run.step(), run.step(), run.finish()) == [None] * 4
    assert meter.commits == 1
    found = await store.run(run.run_id)
    assert found is not None
    assert (found.seq, found.semaphore, found.closed_at_ms) == (22, 0, NOW)


async def test_a_run_can_be_created_and_finished_within_one_group(store: Store) -> None:
    run = Driven()
    meter = await Meter.of(store)
    assert await submit(store, run.start(), run.first_step(), run.finish()) == [None] * 3
    assert meter.commits == 1
    found = await store.run(run.run_id)
    assert found is not None
    assert (found.closed_at_ms, found.owner) == (NOW, None)


async def test_of_two_starts_with_one_key_in_a_group_exactly_one_wins(store: Store) -> None:
    first, second = Driven(key="order-42"), Driven(key="order-42")
    outcomes = await asyncio.gather(
        store.commit(first.start()), store.commit(second.start()), return_exceptions=True
    )
    assert outcomes[0] is None
    assert isinstance(outcomes[1], RunExists)
    assert outcomes[1].run_id == first.run_id
    assert await store.run(second.run_id) is None


async def test_a_run_id_used_twice_in_a_group_is_created_once(store: Store) -> None:
    run = Driven()
    twin = Driven(run_id=run.run_id)
    assert await submit(store, run.start(), twin.start()) == [None, RunExists]
    await store.commit(run.first_step())


async def test_a_taken_key_rejects_the_later_bundles_of_its_run(store: Store) -> None:
    await store.commit(Driven(key="order-42").start())
    late, other = Driven(key="order-42"), Driven()
    bundles = [late.start(), other.start(), late.first_step(), other.first_step()]
    assert await submit(store, *bundles) == [RunExists, None, RunExists, None]


async def test_a_stale_owner_in_a_group_does_not_reject_the_new_owner(store: Store) -> None:
    """Both are in one process, which lost the run and regained it."""
    run = await begun(store)
    await store.take_over(HOST, OTHER_HOST, 10)
    await store.take_over(OTHER_HOST, HOST, 10)
    again = await run.reload(store)
    assert await submit(store, run.step(), again.step()) == [StaleFence, None]


async def test_a_stale_acknowledgement_in_a_group_does_not_reject_the_new_owner(
    store: Store,
) -> None:
    run = await begun(store)
    await store.take_over(HOST, OTHER_HOST, 10)
    again = await run.reload(store)
    stale = Bundle()
    stale.acknowledge(run.fence, run.guid("a"))
    assert await submit(store, stale, again.step()) == [StaleFence, None]


async def test_a_stale_sequence_in_a_group_does_not_reject_the_current_one(store: Store) -> None:
    run = await begun(store)
    again = await run.reload(store)
    await store.commit(again.step())
    assert await submit(store, run.step(), again.step()) == [StaleFence, None]


async def test_entries_with_a_gap_in_one_bundle_are_rejected(store: Store) -> None:
    run = Driven()
    start, _, second = run.start(), run.first_step(), run.step()
    assert await submit(store, together(start, second)) == [StaleFence]
    assert await store.run(run.run_id) is None


async def test_one_task_finished_twice_in_a_group_is_finished_once(store: Store) -> None:
    run = await begun(store)
    bundle = Bundle()
    bundle.put_work(run.fence, run.work())
    await store.commit(bundle)
    await store.claim_work(HOST, ["gpu"], "token", NOW, 1000, 10)
    finishing = [Bundle(), Bundle()]
    for bundle in finishing:
        bundle.finish_work(run.run_id, run.work().step, "token")
    async with asyncio.timeout(60):
        assert await submit(store, *finishing) == [None, StaleToken]


async def test_every_kind_of_rejection_in_one_group_leaves_the_others_alone(store: Store) -> None:
    stale, good, holder = await begun(store), await begun(store), Driven(key="k")
    await store.commit(holder.start())
    await store.commit((await stale.reload(store)).step())
    ghost, late, fresh = Driven(), Driven(key="k"), Driven(key="fresh")
    ghost.start()
    lost = Bundle()
    lost.finish_work(good.run_id, good.work().step, "no such token")
    bundles = [
        good.step(),
        stale.step(),
        late.start(),
        ghost.first_step(),
        lost,
        fresh.start(),
        sending(good.message("hello")),
        good.step(),
    ]
    assert await submit(store, *bundles) == [
        None,
        StaleFence,
        RunExists,
        UnknownRun,
        StaleToken,
        None,
        None,
        None,
    ]
    assert len(await store.messages(good.run_id)) == 1


async def test_each_unowned_run_is_claimed_by_one_of_two_hosts(hosts: tuple[Store, Store]) -> None:
    first, second = hosts
    for _ in range(30):
        await begun(first, owner=None)
    claims = await asyncio.gather(
        *(first.claim_runs(HOST, 4) for _ in range(5)),
        *(second.claim_runs(OTHER_HOST, 4) for _ in range(5)),
    )
    claimed = [run.run_id for claim in claims for run in claim]
    assert len(claimed) == len(set(claimed))
    rest = await first.claim_runs(HOST, 100)
    assert len(claimed) + len(rest) == 30


async def test_two_hosts_that_start_one_key_at_once_make_one_run(
    hosts: tuple[Store, Store],
) -> None:
    for number in range(20):
        runs = [Driven(key=f"order-{number}") for _ in range(2)]
        outcomes = await asyncio.gather(
            *(host.commit(run.start()) for host, run in zip(hosts, runs, strict=True)),
            return_exceptions=True,
        )
        winner = await hosts[0].run_by_key("", "checkout", f"order-{number}")
        assert winner is not None
        for run, outcome in zip(runs, outcomes, strict=True):
            if run.run_id == winner.run_id:
                assert outcome is None
            else:
                assert isinstance(outcome, RunExists)
                assert outcome.run_id == winner.run_id


async def test_a_takeover_during_a_burst_of_commits_fences_cleanly(
    hosts: tuple[Store, Store],
) -> None:
    """Each run has the entries up to its takeover and none after it."""
    old, new = hosts
    runs = [await begun(old) for _ in range(10)]
    steps = [old.commit(run.step()) for _ in range(10) for run in runs]
    burst = asyncio.gather(*steps, return_exceptions=True)
    await asyncio.sleep(0)
    taken = await new.take_over(HOST, OTHER_HOST, 100)
    await burst
    assert len(taken) == 10
    for run in taken:
        found = await new.run(run.run_id)
        assert found is not None
        assert (found.seq, found.epoch) == (run.seq, 2)


async def test_a_fence_of_another_epoch_may_not_even_acknowledge(store: Store) -> None:
    run = await begun(store)
    await store.commit(sending(run.message("a")))
    bundle = Bundle()
    bundle.acknowledge(Fence(run.run_id, 5), run.guid("a"))
    assert await submit(store, bundle) == [StaleFence]
    assert len(await store.messages(run.run_id)) == 1
