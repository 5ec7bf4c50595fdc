"""The committer alone: what it passes to `write`, when, and what its callers receive."""

import asyncio
from collections.abc import Awaitable, Sequence

import pytest

from perdure.core.errors import CommitRejected, StaleFence, StoreClosed, StoreUnavailable
from perdure.store.commit.bundle import Bundle
from perdure.store.commit.committer import SMALL_GROUP, Committer
from perdure.store.commit.group import Group
from perdure.store.commit.writer import BundleOutcomes, PendingWrites, write_async
from perdure.store.opening import open_store
from perdure.store.rows.hosts import HostScope, NewHost
from perdure.store.store import Store
from tests.store.builders import Driven, Meter, assert_typed, begun

pytestmark = pytest.mark.asyncio


class Disk:
    """Writes when `ready` is set, and records the groups."""

    def __init__(self) -> None:
        self.groups: list[list[Bundle]] = []
        self.ready = asyncio.Event()
        self.outcome: CommitRejected | None = None
        self.error: BaseException | None = None

    async def write(self, bundles: Sequence[Bundle]) -> BundleOutcomes:
        self.groups.append(list(bundles))
        await self.ready.wait()
        if self.error is not None:
            raise self.error
        return [self.outcome] * len(bundles)

    @property
    def sizes(self) -> list[int]:
        return [len(group) for group in self.groups]

    @property
    def written(self) -> list[Bundle]:
        return [bundle for group in self.groups for bundle in group]


@pytest.fixture
def disk() -> Disk:
    return Disk()


async def submit(committer: Committer, bundles: Sequence[Bundle]) -> list[asyncio.Task[None]]:
    tasks = [asyncio.ensure_future(committer.commit(bundle)) for bundle in bundles]
    await settle()
    return tasks


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def bundles_of(count: int) -> list[Bundle]:
    return [Bundle() for _ in range(count)]


async def test_bundles_submitted_during_a_commit_share_the_next(disk: Disk) -> None:
    committer = Committer(disk.write)
    first = await submit(committer, bundles_of(1))
    rest = await submit(committer, bundles_of(SMALL_GROUP))
    assert disk.sizes == [1]
    disk.ready.set()
    await asyncio.gather(*first, *rest)
    assert disk.sizes == [1, SMALL_GROUP]


async def test_half_of_a_long_queue_is_written_first(disk: Disk) -> None:
    """So that there is always a group to write, and a submitter that can continue."""
    committer = Committer(disk.write)
    first = await submit(committer, bundles_of(1))
    rest = await submit(committer, bundles_of(4 * SMALL_GROUP))
    disk.ready.set()
    await asyncio.gather(*first, *rest)
    assert disk.sizes == [1, 2 * SMALL_GROUP, SMALL_GROUP, SMALL_GROUP]


async def test_a_group_is_no_larger_than_the_limit(disk: Disk) -> None:
    committer = Committer(disk.write, max_group=3)
    bundles = bundles_of(8)
    tasks = await submit(committer, bundles)
    disk.ready.set()
    await asyncio.gather(*tasks)
    assert disk.sizes == [3, 3, 2]
    assert disk.written == bundles


async def test_submitters_wait_while_the_queue_is_full_and_no_bundle_is_lost(disk: Disk) -> None:
    committer = Committer(disk.write, max_queued=2)
    bundles = bundles_of(7)
    tasks = await submit(committer, bundles)
    assert disk.sizes == [2]
    assert not any(task.done() for task in tasks)
    disk.ready.set()
    await asyncio.gather(*tasks)
    assert disk.written == bundles
    assert max(disk.sizes) <= 2


async def test_a_submitter_gets_its_answer_after_the_write(disk: Disk) -> None:
    committer = Committer(disk.write)
    (task,) = await submit(committer, bundles_of(1))
    assert not task.done()
    disk.ready.set()
    await task


async def test_closing_waits_until_all_accepted_bundles_are_written(disk: Disk) -> None:
    committer = Committer(disk.write, max_group=2)
    tasks = await submit(committer, bundles_of(5))
    closing = asyncio.create_task(committer.close())
    await settle()
    assert not closing.done()
    disk.ready.set()
    await closing
    assert all(task.done() for task in tasks)
    await asyncio.gather(*tasks)
    assert disk.sizes == [2, 2, 1]


async def test_after_closing_bundles_are_refused(disk: Disk) -> None:
    committer = Committer(disk.write)
    await committer.close()
    with pytest.raises(StoreClosed) as closed:
        await committer.commit(Bundle())
    assert_typed(closed.value, "store-closed", "closed")
    assert disk.groups == []


async def test_submitters_that_wait_for_room_are_refused_when_it_closes(disk: Disk) -> None:
    committer = Committer(disk.write, max_queued=2)
    bundles = bundles_of(4)
    tasks = await submit(committer, bundles)
    closing = asyncio.create_task(committer.close())
    await settle()
    disk.ready.set()
    await closing
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert outcomes[:2] == [None, None]
    assert [type(outcome) for outcome in outcomes[2:]] == [StoreClosed, StoreClosed]
    assert disk.written == bundles[:2]


async def test_a_cancelled_submitter_does_not_withdraw_its_bundle(disk: Disk) -> None:
    committer = Committer(disk.write)
    bundles = bundles_of(3)
    tasks = await submit(committer, bundles)
    tasks[1].cancel()
    disk.ready.set()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(outcomes[1], asyncio.CancelledError)
    assert outcomes[0] is outcomes[2] is None
    assert disk.written == bundles


async def test_a_submitter_cancelled_before_it_is_queued_writes_nothing_and_breaks_the_fence(
    disk: Disk,
) -> None:
    committer = Committer(disk.write, max_queued=1)
    run = Driven()
    waiting = run.start()
    bundles = [Bundle(), waiting, Bundle()]
    tasks = await submit(committer, bundles)
    tasks[1].cancel()
    disk.ready.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert disk.written == [bundles[0], bundles[2]]
    assert run.fence.broken


async def test_a_rejection_reaches_its_submitter(disk: Disk) -> None:
    committer = Committer(disk.write)
    disk.outcome = StaleFence("stale", "reload")
    disk.ready.set()
    with pytest.raises(StaleFence):
        await committer.commit(Bundle())


async def test_an_error_of_the_backend_reaches_every_submitter_and_the_next_group_is_written(
    disk: Disk,
) -> None:
    committer = Committer(disk.write, max_group=2)
    tasks = await submit(committer, bundles_of(2))
    disk.error = OSError("disk on fire")
    disk.ready.set()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert outcomes == [disk.error, disk.error]
    disk.error = None
    await committer.commit(Bundle())
    await committer.close()


async def test_an_error_of_the_backend_breaks_the_fences_of_its_group() -> None:
    async def apply(_: Group) -> dict[int, CommitRejected]:
        raise StoreUnavailable("no disk", "find one")

    runs = [Driven(), Driven()]
    with pytest.raises(StoreUnavailable):
        await write_async(PendingWrites([run.start() for run in runs]), apply)
    assert all(run.fence.broken for run in runs)


async def test_the_order_of_a_run_is_kept_under_back_pressure(store: Store) -> None:
    store._committer = Committer(store._committer._write, max_group=3, max_queued=5)  # type: ignore[attr-defined]
    runs = [await begun(store) for _ in range(4)]
    await asyncio.gather(*(store.commit(run.step()) for _ in range(10) for run in runs))
    for run in runs:
        found = await store.run(run.run_id)
        assert found is not None
        assert (found.seq, found.head) == (run.journal.seq, run.journal.head)


async def test_many_submitters_share_few_commits(store: Store) -> None:
    runs = [Driven() for _ in range(SMALL_GROUP)]
    meter = await Meter.of(store)
    await asyncio.gather(*(store.commit(run.start()) for run in runs))
    assert meter.commits == 1
    await asyncio.gather(*(store.commit(run.first_step()) for run in runs))
    assert meter.commits == 2


async def test_closing_a_store_writes_all_accepted_bundles(hosts: tuple[Store, Store]) -> None:
    other, closing = hosts
    runs = [Driven() for _ in range(50)]
    tasks = [asyncio.ensure_future(closing.commit(run.start())) for run in runs]
    await settle()
    await closing.close()
    await asyncio.gather(*tasks)
    assert len(await other.open_runs(runs[0].new.owner)) == 50


async def test_every_call_of_a_closed_store_raises(store_url: str) -> None:
    closed = await open_store(store_url)
    run = await begun(closed)
    await closed.close()
    await closed.close()
    owner, run_id = run.new.owner, run.run_id
    assert owner is not None
    calls = [
        lambda: closed.commit(Bundle()),
        lambda: closed.run(run_id),
        lambda: closed.entries(run_id),
        lambda: closed.due_messages(owner, 0, 1),
        lambda: closed.claim_runs(owner, 1),
        lambda: closed.take_over(owner, owner, 1),
        lambda: closed.take_run(run_id, owner, owner),
        lambda: closed.release_run(run.fence),
        lambda: closed.claim_work(owner, ["gpu"], "t", 0, 1, 1),
        lambda: closed.renew_work([], 1),
        lambda: closed.return_work(owner, 1),
        lambda: closed.erase_payloads(run_id, 0, 1),
        lambda: closed.release_runs(owner),
        lambda: closed.host_snapshot(HostScope(owner, (), (), 0)),
        lambda: closed.count_open(owner),
        lambda: closed.register_host(NewHost(owner, 1, (), 0)),
        lambda: closed.remove_host(owner),
        lambda: closed.next_due(owner),
        lambda: closed.published(run_id),
        lambda: closed.streams(run_id),
        lambda: closed.chunks(run_id, "tokens", 0, 1),
        lambda: closed.spans(run_id, "tokens", 1),
        lambda: closed.return_claims([], 1),
        lambda: closed.return_stopped([], 1),
        lambda: closed.next_work(["gpu"]),
        lambda: closed.load([run_id]),
        lambda: anext(closed.books()),
    ]
    for call in calls:
        async with asyncio.timeout(60):
            with pytest.raises(StoreClosed):
                await call()  # type: ignore[no-untyped-call]


async def test_a_write_that_fails_at_once_reaches_its_submitters_and_the_next_group_is_written(
    disk: Disk,
) -> None:
    calls = 0

    def write(bundles: Sequence[Bundle]) -> Awaitable[BundleOutcomes]:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise StoreUnavailable("the disk is full", "free some room")
        return disk.write(bundles)

    disk.ready.set()
    committer = Committer(write)
    with pytest.raises(StoreUnavailable):
        await committer.commit(Bundle())
    await committer.commit(Bundle())
    await committer.close()


async def test_writes_that_complete_at_once_do_not_recurse() -> None:
    def write(bundles: Sequence[Bundle]) -> Awaitable[BundleOutcomes]:
        answer: asyncio.Future[BundleOutcomes] = asyncio.get_running_loop().create_future()
        answer.set_result([None] * len(bundles))
        return answer

    committer = Committer(write, max_group=1)
    await asyncio.gather(*(committer.commit(bundle) for bundle in bundles_of(3000)))


async def test_a_second_close_waits_for_the_first(store_url: str) -> None:
    store = await open_store(store_url)
    run = await begun(store)
    commit = asyncio.ensure_future(store.commit(run.step()))
    await asyncio.sleep(0)
    await asyncio.gather(store.close(), store.close())
    assert commit.done()
