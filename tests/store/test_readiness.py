"""Nodes of graphs that wait for their predecessors, and their stored values."""

import asyncio
import random
from collections.abc import Callable, Sequence
from itertools import chain

import pytest

from perdure.core.errors import (
    BundleRefused,
    CommitRejected,
    InputError,
    ReadinessOverflow,
    StaleFence,
)
from perdure.core.ids import RunId, StepId
from perdure.core.journal import events as e
from perdure.core.limits import MAX_NAME_LENGTH, MAX_PAYLOAD_BYTES
from perdure.store.commit.bundle import NO_ITEM, Bundle
from perdure.store.commit.graph_index import HOOK_KINDS
from perdure.store.opening import open_store
from perdure.store.postgres.store import PostgresStore
from perdure.store.rows.records import InboxRow, ReadinessRow
from perdure.store.sqlite.store import SqliteStore
from perdure.store.store import Store
from tests.store.builders import (
    HOST,
    OTHER_HOST,
    Driven,
    Meter,
    assert_typed,
    begun,
    contents,
    raw,
)
from tests.store.failing import fail_once, lose_after_commit, lose_before_commit

pytestmark = pytest.mark.asyncio

JOIN = StepId("join,0")
OTHER = StepId("other,0")
SOURCE = StepId("price,0")


def noting(run: Driven) -> Bundle:
    """A bundle with an entry of the run."""
    return run.appending(e.Posted("note", ()))


def tracking(run: Driven, required: int = 3, resolved: int = 1, step: StepId = JOIN) -> Bundle:
    bundle = noting(run)
    bundle.track(run.fence, step, required, resolved)
    return bundle


async def outcomes(store: Store, *bundles: Bundle) -> list[type[BaseException] | None]:
    """Submit all before the first is written: one group."""
    found = await asyncio.gather(*map(store.commit, bundles), return_exceptions=True)
    for outcome in found:
        assert outcome is None or isinstance(outcome, CommitRejected)
    return [None if outcome is None else type(outcome) for outcome in found]


async def test_resolved_predecessors_are_counted(store: Store) -> None:
    run, other = await begun(store), await begun(store)
    await store.commit(tracking(run))
    assert await store.readiness(run.run_id) == [ReadinessRow(JOIN, 3, 1)]
    await store.commit(tracking(run, resolved=2))
    await store.commit(tracking(run, 2, 1, OTHER))
    assert await store.readiness(run.run_id) == [
        ReadinessRow(JOIN, 3, 3),
        ReadinessRow(OTHER, 2, 1),
    ]
    assert await store.readiness(other.run_id) == []


async def test_delivered_values_wait_in_order(store: Store) -> None:
    run, other = await begun(store), await begun(store)
    bundle = tracking(run)
    for position in (2, NO_ITEM, 0):
        for variable in ("b", "a"):
            bundle.deliver(run.fence, JOIN, SOURCE, variable, position, b"\0%d" % position)
    bundle.deliver(run.fence, JOIN, StepId("alpha,0"), "b", 0, b"")
    await store.commit(bundle)
    assert await store.inbox(run.run_id) == [
        InboxRow(JOIN, SOURCE, "a", NO_ITEM, b"\0-1"),
        InboxRow(JOIN, SOURCE, "b", NO_ITEM, b"\0-1"),
        InboxRow(JOIN, StepId("alpha,0"), "b", 0, b""),
        InboxRow(JOIN, SOURCE, "a", 0, b"\x000"),
        InboxRow(JOIN, SOURCE, "b", 0, b"\x000"),
        InboxRow(JOIN, SOURCE, "a", 2, b"\x002"),
        InboxRow(JOIN, SOURCE, "b", 2, b"\x002"),
    ]
    assert await store.inbox(other.run_id) == []


async def test_a_node_that_is_ready_leaves_no_rows(store: Store) -> None:
    run, other = await begun(store), await begun(store)
    for driven in (run, other):
        for step in (JOIN, OTHER):
            bundle = tracking(driven, step=step)
            bundle.deliver(driven.fence, step, SOURCE, "a", 0, b"1")
            await store.commit(bundle)
    last = tracking(run, resolved=2)
    last.ready(run.fence, JOIN)
    await store.commit(last)
    assert await store.readiness(run.run_id) == [ReadinessRow(OTHER, 3, 1)]
    assert [delivery.step for delivery in await store.inbox(run.run_id)] == [OTHER]
    assert len(await store.readiness(other.run_id)) == len(await store.inbox(other.run_id)) == 2


async def test_a_node_that_never_waited_becomes_ready_without_a_change(store: Store) -> None:
    run = await begun(store)
    before = await contents(store)
    bundle = Bundle()
    bundle.ready(run.fence, JOIN)
    await store.commit(bundle)
    assert await contents(store) == before


async def test_a_node_that_is_reached_and_ready_at_once_costs_what_a_step_does(
    store: Store,
) -> None:
    run, plain = await begun(store), await begun(store)
    meter = await Meter.of(store)
    await store.commit(plain.step())
    cost = list(meter.statements)
    meter.statements.clear()
    bundle = run.step()
    bundle.track(run.fence, JOIN, 2, 1)
    bundle.deliver(run.fence, JOIN, SOURCE, "a", NO_ITEM, b"1")
    bundle.track(run.fence, JOIN, 2, 1)
    bundle.ready(run.fence, JOIN)
    await store.commit(bundle)
    assert meter.statements == cost
    assert await store.readiness(run.run_id) == []


async def test_values_that_arrive_after_a_node_was_ready_wait(store: Store) -> None:
    """A cycle returns to it."""
    run = await begun(store)
    bundle = tracking(run, 1, 1)
    bundle.deliver(run.fence, JOIN, SOURCE, "a", 0, b"old")
    bundle.ready(run.fence, JOIN)
    bundle.track(run.fence, JOIN, 2, 1)
    bundle.deliver(run.fence, JOIN, SOURCE, "a", 0, b"new")
    await store.commit(bundle)
    assert await store.readiness(run.run_id) == [ReadinessRow(JOIN, 2, 1)]
    assert await store.inbox(run.run_id) == [InboxRow(JOIN, SOURCE, "a", 0, b"new")]


async def test_the_end_of_a_run_deletes_all_its_waiting_rows(store: Store) -> None:
    run, other = await begun(store), await begun(store)
    for driven in (run, other):
        bundle = tracking(driven)
        bundle.deliver(driven.fence, JOIN, SOURCE, "a", 0, b"1")
        await store.commit(bundle)
    end = tracking(run, step=OTHER)
    end.untrack_all(run.fence)
    await store.commit(end)
    assert await store.readiness(run.run_id) == []
    assert await store.inbox(run.run_id) == []
    assert len(await store.readiness(other.run_id)) == len(await store.inbox(other.run_id)) == 1


@pytest.mark.parametrize(
    ("required", "resolved", "counts"),
    [(3, 2, ("2 of 3", "2 of 3")), (4, 1, ("2 of 3", "1 of 4"))],
    ids=["too many", "another number"],
)
async def test_a_wrong_count_is_rejected_and_nothing_is_written(
    store: Store, required: int, resolved: int, counts: tuple[str, str]
) -> None:
    run = await begun(store)
    await store.commit(tracking(run, 3, 2))
    before = await contents(store)
    bundle = tracking(run, required, resolved)
    bundle.deliver(run.fence, JOIN, SOURCE, "a", 0, b"1")
    bundle.publish(run.run_id, "progress", b"1", 0)
    with pytest.raises(ReadinessOverflow) as caught:
        await store.commit(bundle)
    assert isinstance(caught.value, BundleRefused)
    assert_typed(caught.value, "readiness-overflow", JOIN, run.run_id, *counts)
    assert await contents(store) == before
    with pytest.raises(StaleFence):
        await store.commit(noting(run))


async def test_a_wrong_count_within_a_bundle_is_refused_where_it_is_made(store: Store) -> None:
    run = await begun(store)
    with pytest.raises(ReadinessOverflow):
        tracking(run, 2, 3)
    again = await run.reload(store)
    bundle = tracking(again, 2, 1)
    with pytest.raises(ReadinessOverflow) as caught:
        bundle.track(again.fence, JOIN, 3, 1)
    assert_typed(caught.value, "readiness-overflow", "1 of 2", "1 of 3")
    with pytest.raises(ReadinessOverflow):
        bundle.track(again.fence, JOIN, 2, 2)
    await store.commit(bundle)
    assert await store.readiness(run.run_id) == [ReadinessRow(JOIN, 2, 1)]


async def test_counts_of_a_group_are_summed_and_a_bundle_that_exceeds_them_is_rejected(
    store: Store,
) -> None:
    run, other = await begun(store), await begun(store)
    await store.commit(tracking(run, 5, 1))
    good = [tracking(run, 5, 2), tracking(other, 2, 1), tracking(run, 5, 1), tracking(other, 2, 1)]
    meter = await Meter.of(store)
    assert await outcomes(store, *good) == [None] * 4
    assert meter.commits == 1
    assert sum("readiness" in sql for sql in meter.statements) == 1
    assert await store.readiness(run.run_id) == [ReadinessRow(JOIN, 5, 4)]
    bad = [
        tracking(run, 5, 1),
        tracking(run, 5, 1),
        tracking(other, 3, 1, OTHER),
        tracking(run, 5, 1, OTHER),
    ]
    assert await outcomes(store, *bad) == [None, ReadinessOverflow, None, StaleFence]
    assert await store.readiness(run.run_id) == [ReadinessRow(JOIN, 5, 5)]
    assert await store.readiness(other.run_id) == [
        ReadinessRow(JOIN, 2, 2),
        ReadinessRow(OTHER, 3, 1),
    ]


async def test_bundles_of_a_group_that_require_different_numbers_do_not_both_pass(
    store: Store,
) -> None:
    run = await begun(store)
    bundles = [tracking(run, 5, 1), tracking(run, 4, 1)]
    assert await outcomes(store, *bundles) == [None, ReadinessOverflow]
    assert await store.readiness(run.run_id) == [ReadinessRow(JOIN, 5, 1)]


async def test_a_node_of_a_group_may_be_ready_and_reached_again(store: Store) -> None:
    run = await begun(store)
    await store.commit(tracking(run, 3, 2))
    ready = tracking(run, 3, 1)
    ready.ready(run.fence, JOIN)
    assert await outcomes(store, ready, tracking(run, 4, 3), tracking(run, 4, 1)) == [None] * 3
    assert await store.readiness(run.run_id) == [ReadinessRow(JOIN, 4, 4)]


async def test_a_stale_owner_changes_no_waiting_rows(store: Store) -> None:
    run = await begun(store)
    bundle = tracking(run)
    bundle.deliver(run.fence, JOIN, SOURCE, "a", 0, b"1")
    await store.commit(bundle)
    await store.take_over(HOST, OTHER_HOST, 10)
    before = await contents(store)
    attempts: list[Callable[[Bundle, Driven], object]] = [
        lambda b, r: b.track(r.fence, JOIN, 3, 1),
        lambda b, r: b.deliver(r.fence, JOIN, SOURCE, "b", 0, b"1"),
        lambda b, r: b.ready(r.fence, JOIN),
        lambda b, r: b.untrack_all(r.fence),
        lambda b, r: b.rebuild(r.fence, [], []),
    ]
    for attempt in attempts:
        run.fence.broken = False
        bundle = Bundle() if attempt in attempts[2:] else noting(run)
        attempt(bundle, run)
        with pytest.raises(StaleFence):
            await store.commit(bundle)
        assert await contents(store) == before


async def test_a_value_that_is_delivered_twice_is_refused(store: Store) -> None:
    run, other = await begun(store), await begun(store)
    first, second = tracking(run), tracking(run)
    for bundle in (first, second):
        bundle.deliver(run.fence, JOIN, SOURCE, "a", 0, b"1")
    assert await outcomes(store, first, other.step(), second) == [None, None, BundleRefused]
    assert await store.readiness(run.run_id) == [ReadinessRow(JOIN, 3, 1)]


async def test_counts_are_refused_without_entries_of_their_run(store: Store) -> None:
    """Otherwise a host could not find out, after a lost connection, whether it was counted."""
    run = await begun(store)
    before = await contents(store)
    attempts: list[Callable[[Bundle], object]] = [
        lambda b: b.track(run.fence, JOIN, 3, 1),
        lambda b: b.deliver(run.fence, JOIN, SOURCE, "a", 0, b"1"),
    ]
    for attempt in attempts:
        run.fence.broken = False
        bundle = Bundle()
        attempt(bundle)
        with pytest.raises(BundleRefused) as caught:
            await store.commit(bundle)
        assert_typed(caught.value, "bundle-refused", run.run_id)
        assert await contents(store) == before


@pytest.mark.postgres
@pytest.mark.parametrize("end", [lose_before_commit, lose_after_commit])
async def test_a_commit_whose_answer_is_lost_counts_once(
    emptied_postgres: str, end: Callable[[object, object], object]
) -> None:
    store = await open_store(emptied_postgres)
    assert isinstance(store, PostgresStore)
    run = await begun(store)
    bundle = tracking(run, 3, 1)
    bundle.deliver(run.fence, JOIN, SOURCE, "a", 0, b"1")
    fail_once(store, end)
    await store.commit(bundle)
    assert await store.readiness(run.run_id) == [ReadinessRow(JOIN, 3, 1)]
    fail_once(store, end)
    await store.rebuild_index(run.fence, [ReadinessRow(JOIN, 3, 2)], [])
    assert await store.readiness(run.run_id) == [ReadinessRow(JOIN, 3, 2)]
    await store.close()


async def test_the_index_of_a_run_is_rebuilt(store: Store) -> None:
    run, other = await begun(store), await begun(store)
    for driven in (run, other):
        bundle = tracking(driven)
        bundle.deliver(driven.fence, JOIN, SOURCE, "a", 0, b"1")
        await store.commit(bundle)
    kept = await contents(store)
    readiness = await store.readiness(run.run_id)
    inbox = await store.inbox(run.run_id)
    await store.rebuild_index(run.fence, [ReadinessRow(OTHER, 9, 9)], [])
    assert await store.readiness(run.run_id) == [ReadinessRow(OTHER, 9, 9)]
    assert await store.inbox(run.run_id) == []
    await raw(store, "DELETE FROM {}readiness WHERE run_id = '" + run.run_id + "'")
    await store.rebuild_index(run.fence, readiness, inbox)
    assert await contents(store) == kept
    await store.commit(tracking(run, 3, 1))
    assert await store.readiness(run.run_id) == [ReadinessRow(JOIN, 3, 2)]


async def test_a_barrier_of_many_items_costs_few_statements(store: Store) -> None:
    runs = [await begun(store) for _ in range(10)]
    bundles = []
    for run in runs:
        bundle = noting(run)
        for position in range(1000):
            bundle.track(run.fence, JOIN, 1001, 1)
            bundle.deliver(run.fence, JOIN, SOURCE, "item", position, b"%d" % position)
        bundles.append(bundle)
    assert len(bundles[0].fences) == 1, "however many calls"
    meter = await Meter.of(store)
    assert await outcomes(store, *bundles) == [None] * 10
    assert meter.commits == 1
    # SQLite takes up to 512 rows at a time.
    most = 10_000 // 512 + 10 if isinstance(store, SqliteStore) else 10
    assert len(meter.statements) < most
    assert [len(await store.inbox(run.run_id)) for run in runs] == [1000] * 10
    meter.statements.clear()
    ready = noting(runs[0])
    ready.track(runs[0].fence, JOIN, 1001, 1)
    ready.ready(runs[0].fence, JOIN)
    await store.commit(ready)
    assert len(meter.statements) < 8
    assert await store.inbox(runs[0].run_id) == []
    assert await store.readiness(runs[0].run_id) == []
    assert len(await store.inbox(runs[1].run_id)) == 1000


async def test_the_longest_names_and_the_largest_value_wait(store: Store) -> None:
    def noise(size: int) -> str:
        return "".join(random.Random(size).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=size))

    run = await begun(store)
    step, source, variable = StepId(noise(1024)), StepId(noise(1023)), noise(MAX_NAME_LENGTH)
    bundle = tracking(run, 2**63 - 1, 2**62, step)
    bundle.deliver(run.fence, step, source, variable, 2**63 - 1, b"\0" * MAX_PAYLOAD_BYTES)
    await store.commit(bundle)
    (delivery,) = await store.inbox(run.run_id)
    assert (delivery.step, delivery.source, delivery.variable) == (step, source, variable)
    assert len(delivery.value) == MAX_PAYLOAD_BYTES
    assert await store.readiness(run.run_id) == [ReadinessRow(step, 2**63 - 1, 2**62)]


@pytest.mark.parametrize("resolved", [0, -1])
async def test_a_node_is_tracked_with_at_least_one_resolved_predecessor(
    store: Store, resolved: int
) -> None:
    run = await begun(store)
    with pytest.raises(InputError) as caught:
        tracking(run, 3, resolved)
    assert_typed(caught.value, "input", str(resolved), JOIN)


async def test_a_position_that_is_neither_an_item_nor_none_is_refused(store: Store) -> None:
    run = await begun(store)
    with pytest.raises(InputError) as caught:
        Bundle().deliver(run.fence, JOIN, SOURCE, "a", -2, b"")
    assert_typed(caught.value, "input", "-2", SOURCE)


Change = Callable[[Bundle, Driven], object]


def some_changes(dice: random.Random, steps: Sequence[StepId]) -> list[Change]:
    """Possible next changes of a graph; each value has a name of its own, so that none is delivered twice."""

    def reach(step: StepId) -> list[Change]:
        name = str(dice.random())
        return [
            lambda b, r: b.track(r.fence, step, 10_000, 1),
            lambda b, r: b.deliver(r.fence, step, SOURCE, name, NO_ITEM, b"1"),
        ]

    def ready(step: StepId) -> list[Change]:
        return [lambda b, r: b.ready(r.fence, step)]

    def end(_: StepId) -> list[Change]:
        return [lambda b, r: b.untrack_all(r.fence)]

    def hook(step: StepId) -> list[Change]:
        mailbox, kind = RunId(f"r_{dice.randrange(2):032x}"), dice.choice(HOOK_KINDS)
        return [lambda b, r: b.hook(r.fence, step, mailbox, kind, "t", "k", 0)]

    def unhook(step: StepId) -> list[Change]:
        return [lambda b, r: b.unhook(r.fence, step)]

    kinds = dice.choices([reach, ready, end, hook, unhook], [6, 2, 1, 4, 2], k=dice.randrange(1, 6))
    return [change for kind in kinds for change in kind(dice.choice(steps))]


@pytest.mark.parametrize("seed", range(20))
async def test_changes_have_the_same_effect_alone_in_a_bundle_and_in_a_group(seed: int) -> None:
    dice = random.Random(seed)
    turns = [some_changes(dice, [JOIN, OTHER]) for _ in range(8)]
    found = []
    for way in ("one by one", "turns", "group", "bundle"):
        store = await open_store("sqlite:///:memory:")
        run = Driven(run_id=RunId(f"r_{seed + 100:032x}"))
        await store.commit(run.start())
        bundles: list[Bundle] = []
        for turn in turns if way != "bundle" else [list(chain.from_iterable(turns))]:
            parts = [[change] for change in turn] if way == "one by one" else [turn]
            for part in parts:
                bundles.append(noting(run))
                for change in part:
                    change(bundles[-1], run)
        if way == "group":
            assert await outcomes(store, *bundles) == [None] * len(bundles)
        else:
            for bundle in bundles:
                await store.commit(bundle)
        after = await contents(store)
        found.append({table: after[table] for table in ("readiness", "inbox", "hook")})
        await store.close()
    assert found[1:] == found[:1] * 3
