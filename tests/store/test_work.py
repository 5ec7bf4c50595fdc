import asyncio

import pytest
from msgspec.structs import replace

from perdure.core.errors import StaleFence, StaleToken
from perdure.core.ids import StepId
from perdure.core.messages import Work
from perdure.store.commit.bundle import Bundle
from perdure.store.rows.records import Claim
from perdure.store.store import Store
from tests.store.builders import (
    HOST,
    NOW,
    OTHER_HOST,
    Driven,
    assert_typed,
    begun,
    contents,
    sending,
    together,
)

pytestmark = pytest.mark.asyncio

LEASE_MS = 1000


async def put(store: Store, run: Driven, *work: Work) -> None:
    bundle = Bundle()
    for task in work:
        bundle.put_work(run.fence, task)
    await store.commit(bundle)


async def claim(
    store: Store, token: str = "t1", *, now_ms: int = NOW, limit: int = 10
) -> list[Claim]:
    return await store.claim_work(HOST, ["gpu"], token, now_ms, LEASE_MS, limit)


def finishing(task: Work, token: str) -> Bundle:
    bundle = Bundle()
    bundle.finish_work(task.run_id, task.step, token)
    return bundle


async def test_claimed_work_reads_back_with_its_lease(store: Store) -> None:
    run = await begun(store)
    task = run.work(priority=3)
    await put(store, run, task)
    (claimed,) = await claim(store)
    assert (claimed.token, claimed.claims) == ("t1", 1)
    assert (claimed.work.run_id, claimed.work.step) == (task.run_id, task.step)
    assert (claimed.work.guid, claimed.work.queue) == (task.guid, "gpu")
    assert (claimed.work.priority, claimed.work.payload) == (3, b"in")
    assert claimed.work.available_at_ms == NOW + LEASE_MS


async def test_work_put_twice_is_one_task(store: Store) -> None:
    run = await begun(store)
    await put(store, run, run.work(), run.work())
    await put(store, run, run.work(priority=9))
    (claimed,) = await claim(store)
    assert claimed.work.priority == 0


async def test_urgent_work_is_claimed_first(store: Store) -> None:
    run = await begun(store)
    tasks = [run.work(f"root.{p}", priority=p) for p in (1, 5, -2, 3)]
    await put(store, run, *tasks)
    first = await claim(store, "t1", limit=3)
    assert [claimed.work.priority for claimed in first] == [5, 3, 1]
    assert [claimed.work.priority for claimed in await claim(store, "t2")] == [-2]


async def test_of_equally_urgent_work_the_oldest_is_claimed_first(store: Store) -> None:
    run = await begun(store)
    await put(store, run, run.work("root.1", at_ms=NOW), run.work("root.2", at_ms=NOW - 5))
    (claimed,) = await claim(store, limit=1)
    assert claimed.work.step == "root.2"


async def test_a_claim_takes_a_batch_from_all_the_named_queues_and_no_other(store: Store) -> None:
    run = await begun(store)
    queues = ["gpu", "cpu", "mail"]
    await put(store, run, *(run.work(f"root.{q}", queue=q) for q in queues))
    claims = await store.claim_work(HOST, ["gpu", "cpu"], "t", NOW, LEASE_MS, 10)
    assert {claimed.work.queue for claimed in claims} == {"gpu", "cpu"}
    assert await store.claim_work(HOST, [], "t", NOW, LEASE_MS, 10) == []


async def test_queues_share_a_claim_however_long_their_backlogs_are(store: Store) -> None:
    run = await begun(store)
    old = [run.work(f"root.{n}", at_ms=NOW - 100 + n) for n in range(10)]
    new = [run.work(f"root.{n}", queue="cpu", at_ms=NOW) for n in range(20, 23)]
    await put(store, run, *old, *new)

    async def shares(token: str, *queues: str, limit: int) -> list[int]:
        claims = await store.claim_work(HOST, queues, token, NOW, LEASE_MS, limit)
        await store.return_claims(claims, NOW)
        return [sum(each.work.queue == queue for each in claims) for queue in ("gpu", "cpu")]

    assert await shares("t1", "gpu", "cpu", limit=6) == [3, 3]
    assert await shares("t2", "gpu", "cpu", "mail", limit=10) == [7, 3]
    assert await shares("t3", "cpu", "gpu", limit=1) == [0, 1]
    assert await shares("t4", "gpu", "cpu", limit=1) == [1, 0]
    assert await shares("t5", "gpu", "cpu", limit=100) == [10, 3]


async def test_a_claim_names_the_owner_of_the_run(store: Store) -> None:
    run = await begun(store)
    await put(store, run, run.work("root.1"), run.work("root.2"))
    (first,) = await claim(store, limit=1)
    assert first.owner == HOST
    await store.take_over(HOST, OTHER_HOST, 10)
    (second,) = await claim(store, "t2", limit=1)
    assert second.owner == OTHER_HOST


async def test_work_is_not_claimed_before_it_is_available(store: Store) -> None:
    run = await begun(store)
    await put(store, run, run.work(at_ms=NOW + 1))
    assert await claim(store) == []
    assert len(await claim(store, now_ms=NOW + 1)) == 1


async def test_two_claimers_at_once_never_share_a_task(hosts: tuple[Store, Store]) -> None:
    first, second = hosts
    run = await begun(first)
    await put(first, run, *(run.work(f"root.{n}") for n in range(60)))
    claims = await asyncio.gather(
        *(
            host.claim_work(name, ["gpu"], f"{name}-{n}", NOW, LEASE_MS, 7)
            for n in range(4)
            for host, name in ((first, HOST), (second, OTHER_HOST))
        )
    )
    steps = [claimed.work.step for batch in claims for claimed in batch]
    assert len(steps) == len(set(steps))
    rest = await first.claim_work(HOST, ["gpu"], "rest", NOW, LEASE_MS, 100)
    assert len(steps) + len(rest) == 60


async def test_finished_work_is_off_its_queue(store: Store) -> None:
    run = await begun(store)
    await put(store, run, run.work())
    await claim(store, "t1")
    await store.commit(
        together(finishing(run.work(), "t1"), sending(run.message("result", "root.9")))
    )
    assert await claim(store, "t2", now_ms=NOW + 10 * LEASE_MS) == []
    assert len(await store.messages(run.run_id)) == 1


async def test_work_is_claimed_by_another_host_after_its_lease_and_the_first_result_is_refused(
    store: Store,
) -> None:
    run = await begun(store)
    await put(store, run, run.work())
    await claim(store, "t1")
    assert await claim(store, "t2", now_ms=NOW + LEASE_MS - 1) == []
    late_ms = NOW + LEASE_MS
    (claimed,) = await store.claim_work(OTHER_HOST, ["gpu"], "t2", late_ms, LEASE_MS, 10)
    assert (claimed.claims, claimed.doubts) == (2, 1)
    before = await contents(store)
    late = together(finishing(run.work(), "t1"), sending(run.message("result", "root.9")))
    with pytest.raises(StaleToken) as stale:
        await store.commit(late)
    assert_typed(stale.value, "stale-token", run.run_id, "root.9")
    assert await contents(store) == before
    await store.commit(finishing(run.work(), "t2"))


async def test_a_host_that_claims_its_own_work_again_leaves_no_doubt(store: Store) -> None:
    run = await begun(store)
    await put(store, run, run.work())
    await claim(store, "t1")
    (claimed,) = await claim(store, "t2", now_ms=NOW + LEASE_MS)
    assert (claimed.token, claimed.claims, claimed.doubts) == ("t2", 1, 0)
    with pytest.raises(StaleToken):
        await store.commit(finishing(run.work(), "t1"))


async def test_a_late_result_counts_if_no_other_host_claimed_the_work(store: Store) -> None:
    run = await begun(store)
    await put(store, run, run.work())
    await claim(store, "t1")
    await store.commit(finishing(run.work(), "t1"))


async def test_a_stale_token_is_rejected_alone_within_a_group(store: Store) -> None:
    run = await begun(store)
    await put(store, run, run.work("root.1"), run.work("root.2"))
    await claim(store, "t1")
    outcomes = await asyncio.gather(
        store.commit(finishing(run.work("root.1"), "wrong")),
        store.commit(finishing(run.work("root.2"), "t1")),
        store.commit(run.step()),
        return_exceptions=True,
    )
    assert isinstance(outcomes[0], StaleToken)
    assert list(outcomes[1:]) == [None, None]


async def test_work_with_a_renewed_lease_is_not_claimed_by_other_hosts(store: Store) -> None:
    run = await begun(store)
    await put(store, run, run.work())
    claims = await claim(store, "t1")
    assert await store.renew_work(claims, NOW + 5 * LEASE_MS) == claims
    assert await claim(store, "t2", now_ms=NOW + LEASE_MS) == []
    assert len(await claim(store, "t2", now_ms=NOW + 5 * LEASE_MS)) == 1


async def test_only_claims_that_still_hold_are_renewed(store: Store) -> None:
    run = await begun(store)
    await put(store, run, run.work("root.1"), run.work("root.2"))
    claims = await claim(store, "t1")
    (again,) = await claim(store, "t2", now_ms=NOW + LEASE_MS, limit=1)
    held = await store.renew_work(claims, NOW + 9 * LEASE_MS)
    assert {claimed.work.step for claimed in held} == {"root.1", "root.2"} - {again.work.step}
    assert await store.renew_work([], NOW) == []


async def test_returned_work_is_due_again_and_its_token_is_void(store: Store) -> None:
    run = await begun(store)
    await put(store, run, run.work("root.1"), run.work("root.2"))
    await claim(store, "t1", limit=1)
    await store.claim_work(OTHER_HOST, ["gpu"], "theirs", NOW, LEASE_MS, 1)
    assert await store.return_work(HOST, NOW + 5) == 1
    assert await store.return_work(HOST, NOW + 5) == 0
    assert await claim(store, "t2", now_ms=NOW + 4) == []
    (claimed,) = await claim(store, "t2", now_ms=NOW + 5)
    assert (claimed.work.step, claimed.claims) == ("root.1", 2)
    with pytest.raises(StaleToken):
        await store.commit(finishing(run.work("root.1"), "t1"))
    await store.commit(finishing(run.work("root.2"), "theirs"))


async def test_work_that_was_put_back_is_regained_by_the_same_claim(store: Store) -> None:
    run = await begun(store)
    await put(store, run, run.work("root.1"))
    claims = await claim(store, "t1")
    await store.return_work(HOST, NOW)
    for _ in ("once", "again, because the answer was lost"):
        assert await store.regain_work(OTHER_HOST, claims, NOW + LEASE_MS) == claims
    assert await claim(store, "t2", now_ms=NOW + LEASE_MS - 1) == []
    await store.commit(finishing(run.work("root.1"), "t1"))
    assert await store.next_work(["gpu"]) is None
    assert await store.regain_work(HOST, [], NOW) == []


async def test_work_that_another_host_has_claimed_is_not_regained(store: Store) -> None:
    run = await begun(store)
    await put(store, run, *(run.work(f"root.{number}") for number in (1, 2, 3)))
    claims = await claim(store, "t1")
    await store.return_work(HOST, NOW)
    theirs = await store.claim_work(OTHER_HOST, ["gpu"], "theirs", NOW, LEASE_MS, 3)
    await store.return_claims(theirs[:1], NOW)
    await store.return_stopped(theirs[1:2], NOW)
    regained = await store.regain_work(HOST, claims, NOW + LEASE_MS)
    assert (
        regained == claims[:1]
    )  # given back unstarted; the second was started there, the third still runs


async def test_work_of_a_later_attempt_is_not_regained(store: Store) -> None:
    run = await begun(store)
    await put(store, run, run.work("root.1"))
    claims = await claim(store, "t1")
    await store.return_work(HOST, NOW)
    bundle = Bundle()
    bundle.drop_work(run.fence, StepId("root.1"))
    bundle.put_work(run.fence, replace(run.work("root.1"), guid=run.message().guid))
    await store.commit(bundle)
    await claim(store, "t2")
    await store.return_work(HOST, NOW)
    assert await store.regain_work(HOST, claims, NOW + LEASE_MS) == []


async def test_a_stale_owner_puts_no_work(store: Store) -> None:
    run = await begun(store)
    await store.take_over(HOST, OTHER_HOST, 10)
    with pytest.raises(StaleFence):
        await put(store, run, run.work())
    assert await claim(store) == []


async def test_a_step_can_be_put_again_by_the_bundle_that_finishes_it(store: Store) -> None:
    """A retry: the same commit takes the old task off the queue and puts the new one on it."""
    run = await begun(store)
    await put(store, run, run.work())
    await claim(store, "t1")
    bundle = finishing(run.work(), "t1")
    bundle.put_work(run.fence, run.work(priority=4))
    await store.commit(bundle)
    (claimed,) = await claim(store, "t2")
    assert (claimed.work.priority, claimed.claims) == (4, 1)


def dropping(run: Driven, *steps: str) -> Bundle:
    bundle = Bundle()
    for step in steps:
        bundle.drop_work(run.fence, StepId(step))
    return bundle


async def test_dropped_work_is_off_its_queue_and_its_claim_is_void(store: Store) -> None:
    run = await begun(store)
    await put(store, run, run.work("root.1"), run.work("root.2"), run.work("root.3"))
    await claim(store, "t1", limit=1)
    await store.commit(dropping(run, "root.1", "root.2"))
    assert [c.work.step for c in await claim(store, "t2", now_ms=NOW + LEASE_MS)] == ["root.3"]
    with pytest.raises(StaleToken):
        await store.commit(finishing(run.work("root.1"), "t1"))


async def test_work_that_is_dropped_with_a_warm_step_is_off_its_queue(store: Store) -> None:
    run = await begun(store)
    await put(store, run, run.work())
    await store.commit(together(run.step(), dropping(run, "root.9")))
    assert await claim(store) == []


async def test_dropping_missing_work_changes_nothing(store: Store) -> None:
    run, other = await begun(store), await begun(store)
    await put(store, other, other.work())
    before = await contents(store)
    await store.commit(dropping(run, "root.9", "root.8"))
    assert await contents(store) == before


async def test_a_stale_owner_drops_no_work(store: Store) -> None:
    run = await begun(store)
    await put(store, run, run.work())
    await store.take_over(HOST, OTHER_HOST, 10)
    with pytest.raises(StaleFence):
        await store.commit(dropping(run, "root.9"))
    assert len(await claim(store)) == 1


async def test_a_task_that_is_dropped_and_put_by_one_bundle_is_a_new_one(store: Store) -> None:
    run = await begun(store)
    await put(store, run, run.work())
    await claim(store, "t1")
    bundle = dropping(run, "root.9")
    bundle.put_work(run.fence, run.work(priority=7))
    await store.commit(bundle)
    (claimed,) = await claim(store, "t2")
    assert (claimed.work.priority, claimed.claims) == (7, 1)


async def test_a_task_that_is_put_and_dropped_by_one_bundle_is_not_stored(store: Store) -> None:
    run = await begun(store)
    bundle = Bundle()
    bundle.put_work(run.fence, run.work("root.1"))
    bundle.put_work(run.fence, run.work("root.2"))
    bundle.drop_work(run.fence, StepId("root.1"))
    await store.commit(bundle)
    assert [claimed.work.step for claimed in await claim(store)] == ["root.2"]


async def test_within_a_group_work_is_put_and_dropped_in_the_order_of_bundles(
    store: Store,
) -> None:
    run = await begun(store)
    putting = [Bundle() for _ in range(3)]
    putting[0].put_work(run.fence, run.work("root.1"))
    putting[1].put_work(run.fence, run.work("root.2", priority=1))
    putting[2].put_work(run.fence, run.work("root.2", priority=2))
    order = [putting[0], putting[1], dropping(run, "root.1", "root.2"), putting[2]]
    await asyncio.gather(*map(store.commit, order))
    (claimed,) = await claim(store)
    assert (claimed.work.step, claimed.work.priority) == ("root.2", 2)


async def test_within_a_group_work_can_not_be_finished_after_it_was_dropped(store: Store) -> None:
    run = await begun(store)
    await put(store, run, run.work("root.1"), run.work("root.2"))
    await claim(store, "t1")
    outcomes = await asyncio.gather(
        store.commit(finishing(run.work("root.2"), "t1")),
        store.commit(dropping(run, "root.1", "root.2")),
        store.commit(finishing(run.work("root.1"), "t1")),
        return_exceptions=True,
    )
    assert list(outcomes[:2]) == [None, None]
    assert isinstance(outcomes[2], StaleToken)


async def test_returned_claims_are_due_at_the_given_time_under_no_token(store: Store) -> None:
    run = await begun(store)
    await put(store, run, *(run.work(f"root.{n}") for n in range(3)))
    first, second, third = await claim(store, "t1")
    await store.return_claims([first, third], NOW + 5)
    await store.return_claims([], NOW)
    assert await claim(store, "t2", now_ms=NOW + 4) == []
    again = await claim(store, "t2", now_ms=NOW + 5)
    assert [claimed.work.step for claimed in again] == [first.work.step, third.work.step]
    assert {claimed.claims for claimed in again} == {1}
    await store.commit(finishing(second.work, "t1"))
    with pytest.raises(StaleToken):
        await store.commit(finishing(first.work, "t1"))


async def test_a_returned_claim_belongs_to_no_host(store: Store) -> None:
    run = await begun(store)
    await put(store, run, run.work())
    await store.return_claims(await claim(store, "t1"), NOW + 5)
    assert await store.return_work(HOST, NOW) == 0


async def test_stopped_work_is_due_with_its_new_payload(store: Store) -> None:
    run = await begun(store)
    await put(store, run, run.work("root.0"), run.work("root.1"))
    first, second = await claim(store, "t1")
    known = replace(first.work, payload=b"more")
    await store.return_stopped([replace(first, work=known)], NOW)
    await store.return_stopped([], NOW)
    (again,) = await store.claim_work(OTHER_HOST, ["gpu"], "t2", NOW, LEASE_MS, 10)
    assert again.work == replace(known, available_at_ms=again.work.available_at_ms)
    assert again.claims == 2
    await store.commit(finishing(second.work, "t1"))
    with pytest.raises(StaleToken):
        await store.commit(finishing(first.work, "t1"))


async def test_a_claim_that_no_longer_holds_is_not_given_back(store: Store) -> None:
    run = await begun(store)
    await put(store, run, run.work())
    late = await claim(store, "t1")
    await claim(store, "t2", now_ms=NOW + LEASE_MS)
    before = await contents(store)
    await store.return_claims(late, NOW)
    await store.return_stopped(late, NOW)
    assert await contents(store) == before


async def test_many_claims_are_given_back_at_once(store: Store) -> None:
    run = await begun(store)
    await put(store, run, *(run.work(f"root.{n}") for n in range(200)))
    await store.return_claims(await claim(store, "t1", limit=200), NOW)
    assert len(await claim(store, "t2", limit=200)) == 200


async def test_the_next_work_is_the_earliest_of_the_named_queues(store: Store) -> None:
    run = await begun(store)
    assert await store.next_work(["gpu"]) is None
    await put(
        store,
        run,
        run.work("root.1", priority=5, at_ms=NOW + 9),
        run.work("root.2", priority=1, at_ms=NOW + 3),
        run.work("root.3", priority=1, at_ms=NOW + 4),
        run.work("root.4", priority=-2, at_ms=NOW + 6),
        run.work("root.5", queue="cpu", at_ms=NOW + 1),
    )
    assert await store.next_work(["gpu"]) == NOW + 3
    assert await store.next_work(["gpu", "cpu", "mail"]) == NOW + 1
    assert await store.next_work(["mail"]) is None
    assert await store.next_work([]) is None


async def test_claimed_work_is_next_when_its_lease_ends(store: Store) -> None:
    run = await begun(store)
    await put(store, run, run.work())
    await claim(store)
    assert await store.next_work(["gpu"]) == NOW + LEASE_MS
