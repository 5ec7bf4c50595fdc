"""Named values that a program lets clients read."""

import asyncio

import pytest

from perdure.core.errors import StaleFence
from perdure.core.ids import HostId, RunId, StepId
from perdure.core.limits import MAX_NAME_LENGTH, MAX_PAYLOAD_BYTES
from perdure.store.commit.bundle import Bundle
from perdure.store.rows.records import TaskHolder
from perdure.store.store import Store
from tests.store.builders import HOST, NOW, OTHER_HOST, Driven, begun, some_run_id, together

pytestmark = pytest.mark.asyncio


def publishing(
    run_id: RunId, *values: tuple[str, bytes, int], by: TaskHolder | None = None
) -> Bundle:
    bundle = Bundle()
    for name, payload, at_ms in values:
        bundle.publish(run_id, name, payload, at_ms, by)
    return bundle


async def test_published_values_read_back_by_name(store: Store) -> None:
    run, other = await begun(store), await begun(store)
    await store.commit(publishing(run.run_id, ("progress", b"\0\xff", NOW), ("phase", b"", NOW)))
    await store.commit(publishing(other.run_id, ("progress", b"other", NOW)))
    assert await store.published(run.run_id) == {"phase": b"", "progress": b"\0\xff"}
    assert await store.published(some_run_id()) == {}


@pytest.mark.parametrize("by", [None, TaskHolder(HOST)], ids=["the run", "a task"])
async def test_the_value_that_commits_last_counts(store: Store, by: TaskHolder | None) -> None:
    run_id = (await begun(store)).run_id
    for payload, at_ms in ((b"1", NOW), (b"2", NOW - 5), (b"3", NOW + 5), (b"4", 0)):
        await store.commit(publishing(run_id, ("progress", payload, at_ms), by=by))
        assert await store.published(run_id) == {"progress": payload}


@pytest.mark.parametrize("by", [None, TaskHolder(HOST)], ids=["the run", "a task"])
async def test_a_value_that_is_sent_again_replaces_only_an_older_one(
    store: Store, by: TaskHolder | None
) -> None:
    run_id = (await begun(store)).run_id
    await store.commit(publishing(run_id, ("progress", b"1", NOW), by=by))
    # After a clock was set back, the time of the name stays.
    await store.commit(publishing(run_id, ("progress", b"2", NOW - 5), by=by))
    for payload, at_ms, kept in (
        (b"earlier", NOW - 1, b"2"),
        (b"at once", NOW, b"2"),
        (b"later", NOW + 1, b"later"),
    ):
        bundle = Bundle()
        bundle.publish(run_id, "progress", payload, at_ms, by, again=True)
        await store.commit(bundle)
        assert await store.published(run_id) == {"progress": kept}


async def test_the_last_value_of_a_name_is_kept_within_a_group(store: Store) -> None:
    run_id = (await begun(store)).run_id
    names = {
        "in order": [(b"1", NOW), (b"2", NOW + 1)],
        "set back": [(b"1", NOW + 1), (b"2", NOW)],
        "same time": [(b"1", NOW), (b"2", NOW)],
    }
    first, second = Bundle(), Bundle()
    for name, values in names.items():
        for bundle, (payload, at_ms) in zip((first, second), values, strict=True):
            bundle.publish(run_id, name, payload, at_ms)
    await asyncio.gather(store.commit(first), store.commit(second))
    assert await store.published(run_id) == dict.fromkeys(names, b"2")


@pytest.mark.parametrize("is_new_first", [True, False])
async def test_an_old_value_that_is_sent_again_in_a_group_does_not_replace_a_new_one(
    store: Store, is_new_first: bool
) -> None:
    run_id = (await begun(store)).run_id
    new, old = Bundle(), Bundle()
    new.publish(run_id, "progress", b"new", NOW)
    old.publish(run_id, "progress", b"old", NOW - 1, again=True)
    bundles = (new, old) if is_new_first else (old, new)
    await asyncio.gather(*(store.commit(each) for each in bundles))
    assert await store.published(run_id) == {"progress": b"new"}


async def test_a_value_published_in_the_bundle_of_a_warm_step_is_stored(store: Store) -> None:
    run = await begun(store)
    await store.commit(together(run.step(), publishing(run.run_id, ("progress", b"1", NOW))))
    assert await store.published(run.run_id) == {"progress": b"1"}


async def test_one_bundle_may_publish_a_name_twice(store: Store) -> None:
    run_id = (await begun(store)).run_id
    await store.commit(publishing(run_id, ("a", b"1", NOW), ("a", b"2", NOW)))
    assert await store.published(run_id) == {"a": b"2"}


async def test_publishing_needs_no_fence_and_does_not_change_the_runs_row(store: Store) -> None:
    run = await begun(store)
    await store.take_over(HOST, OTHER_HOST, 10)
    before = await store.run(run.run_id)
    await store.commit(publishing(run.run_id, ("progress", b"1", NOW)))
    assert await store.published(run.run_id) == {"progress": b"1"}
    assert await store.run(run.run_id) == before


async def test_values_of_a_rejected_bundle_are_not_stored(store: Store) -> None:
    run = await begun(store)
    await store.take_over(HOST, OTHER_HOST, 10)
    with pytest.raises(StaleFence):
        await store.commit(together(run.step(), publishing(run.run_id, ("progress", b"1", NOW))))
    assert await store.published(run.run_id) == {}


async def test_the_longest_name_and_the_largest_value_are_published(store: Store) -> None:
    run_id = (await begun(store)).run_id
    name, payload = "n" * MAX_NAME_LENGTH, b"\0" * MAX_PAYLOAD_BYTES
    await store.commit(publishing(run_id, (name, payload, 2**63 - 1)))
    assert await store.published(run_id) == {name: payload}


async def test_hosts_that_publish_the_same_names_at_once_agree(hosts: tuple[Store, Store]) -> None:
    run_id = (await begun(hosts[0])).run_id
    names = [f"name {number}" for number in range(50)]

    async def publish(store: Store, order: list[str], at_ms: int) -> None:
        for _ in range(5):
            values = [(name, str(at_ms).encode(), at_ms) for name in order]
            await store.commit(publishing(run_id, *values))

    await asyncio.gather(publish(hosts[0], names, NOW), publish(hosts[1], names[::-1], NOW + 1))
    values = set((await hosts[0].published(run_id)).values())
    assert values in ({str(NOW).encode()}, {str(NOW + 1).encode()})


# What tasks publish


async def says(store: Store, run: Driven, by: TaskHolder, value: bytes, at_ms: int = NOW) -> None:
    await store.commit(publishing(run.run_id, ("progress", value, at_ms), by=by))


async def test_only_the_owner_of_a_run_publishes_values_of_its_tasks(store: Store) -> None:
    run = await begun(store)
    await says(store, run, TaskHolder(HOST), b"mine")
    await says(store, run, TaskHolder(OTHER_HOST), b"not its own", NOW + 1)
    assert await store.published(run.run_id) == {"progress": b"mine"}
    await store.take_over(HOST, OTHER_HOST, 10)
    await says(store, run, TaskHolder(HOST), b"of the host that lost it", NOW + 1)
    assert await store.published(run.run_id) == {"progress": b"mine"}
    await says(store, run, TaskHolder(OTHER_HOST), b"of the host that has it", NOW + 1)
    assert await store.published(run.run_id) == {"progress": b"of the host that has it"}


async def test_a_task_of_a_closed_run_publishes_nothing(store: Store) -> None:
    run = await begun(store)
    await store.commit(run.finish())
    await says(store, run, TaskHolder(HOST), b"late")
    assert await store.published(run.run_id) == {}


async def test_a_tasks_value_is_stored_if_its_run_ends_in_the_same_commit(
    store: Store,
) -> None:
    run = await begun(store)
    said = publishing(run.run_id, ("progress", b"in time", NOW), by=TaskHolder(HOST))
    await asyncio.gather(store.commit(Bundle()), store.commit(said), store.commit(run.finish()))
    assert await store.published(run.run_id) == {"progress": b"in time"}


async def claimed(store: Store, run: Driven, host: HostId, at_ms: int = NOW) -> str:
    """The token of the claim of the run's one task, which is due."""
    token = f"of {host} at {at_ms}"
    (claim,) = await store.claim_work(host, ["gpu"], token, at_ms, 1000, 10)
    return claim.token


async def test_the_host_that_has_claimed_a_task_publishes_its_values(store: Store) -> None:
    run, step = await begun(store, owner=OTHER_HOST), StepId("root.9")
    queued = Bundle()
    queued.put_work(run.fence, run.work(step))
    await store.commit(queued)
    await says(store, run, TaskHolder(HOST, step), b"nobody has it")
    assert await store.published(run.run_id) == {}
    await claimed(store, run, HOST)
    await says(store, run, TaskHolder(HOST, step), b"first")
    await says(store, run, TaskHolder(HOST, StepId("root.8")), b"another task", NOW + 1)
    assert await store.published(run.run_id) == {"progress": b"first"}
    third = HostId("host-c")
    token = await claimed(store, run, third, NOW + 2000)
    await says(store, run, TaskHolder(HOST, step), b"its lease has ended", NOW + 1)
    await says(store, run, TaskHolder(third, step), b"second", NOW + 1)
    assert await store.published(run.run_id) == {"progress": b"second"}
    done = Bundle()
    done.finish_work(run.run_id, step, token)
    await store.commit(done)
    await says(store, run, TaskHolder(third, step), b"late", NOW + 2)
    assert await store.published(run.run_id) == {"progress": b"second"}


async def test_an_ignored_value_does_not_prevent_others_in_the_group(store: Store) -> None:
    run = await begun(store)
    lost = TaskHolder(HOST, StepId("root.9"))
    own = together(run.step(), publishing(run.run_id, ("progress", b"own", NOW)))
    await asyncio.gather(
        store.commit(publishing(run.run_id, ("before", b"1", NOW), by=TaskHolder(HOST))),
        store.commit(own),
        store.commit(publishing(run.run_id, ("progress", b"not its task", NOW + 1), by=lost)),
    )
    assert await store.published(run.run_id) == {"progress": b"own", "before": b"1"}
