"""A user's open transaction holds a lock that a bundle needs: only that bundle waits."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import asyncpg
import pytest

from perdure.core.errors import RunExists, StaleFence, StoreClosed
from perdure.store.commit.bundle import Bundle
from perdure.store.commit.group import Group
from perdure.store.commit.writer import Contended, PendingWrites, Rejected, Undecided, write_async
from perdure.store.postgres.store import PostgresStore
from tests.store.builders import Driven, assert_books_balance, begun, sending, together
from tests.store.failing import SlowCommit, fail_once
from tests.store.postgres.test_store import open_postgres

pytestmark = [pytest.mark.asyncio, pytest.mark.postgres]

SOON_S = 60
"""Much longer than a group waits for a lock, and much shorter than a user's transaction may be open."""


@pytest.fixture
async def store(emptied_postgres: str) -> AsyncIterator[PostgresStore]:
    store = await open_postgres(emptied_postgres)
    yield store
    await assert_books_balance(store)
    await store.close()


class Users:
    """A user's open transaction that has written bundles."""

    def __init__(self, url: str, store: PostgresStore) -> None:
        self._url = url
        self._store = store

    async def write(self, *bundles: Bundle) -> None:
        self._connection: asyncpg.Connection[Any] = await asyncpg.connect(self._url)
        self._transaction = self._connection.transaction()
        await self._transaction.start()
        joined = await self._store.join(self._connection)
        for bundle in bundles:
            await joined.write(bundle)

    async def commit(self) -> None:
        await self._transaction.commit()
        await self._connection.close()

    async def roll_back(self) -> None:
        await self._transaction.rollback()
        await self._connection.close()


@pytest.fixture
def users(emptied_postgres: str, store: PostgresStore) -> Users:
    return Users(emptied_postgres, store)


def waiting(answer: Awaitable[None]) -> asyncio.Future[None]:
    return asyncio.ensure_future(answer)


async def all_advance(store: PostgresStore, *runs: Driven) -> None:
    """Other commits are not blocked."""
    async with asyncio.timeout(SOON_S):
        for _ in range(5):
            await asyncio.gather(*(store.commit(run.step()) for run in runs))
        await begun(store)


async def test_a_start_waits_for_an_open_transaction_that_took_its_key(
    store: PostgresStore, users: Users
) -> None:
    others = [await begun(store) for _ in range(5)]
    first, second = Driven(key="k"), Driven(key="k")
    await users.write(first.start())
    contended = waiting(store.commit(second.start()))
    await all_advance(store, *others)
    assert not contended.done()
    await users.commit()
    with pytest.raises(RunExists) as taken:
        await contended
    assert taken.value.run_id == first.run_id


async def test_a_start_succeeds_when_the_open_transaction_gives_its_key_back(
    store: PostgresStore, users: Users
) -> None:
    other, second = await begun(store), Driven(key="k")
    await users.write(Driven(key="k").start())
    contended = waiting(store.commit(second.start()))
    await all_advance(store, other)
    await users.roll_back()
    async with asyncio.timeout(SOON_S):
        await contended
        await store.commit(second.first_step())


async def test_a_message_waits_for_an_open_transaction_that_sent_the_same(
    store: PostgresStore, users: Users
) -> None:
    run, other = await begun(store), await begun(store)
    await users.write(sending(run.message("same")))
    contended = waiting(store.commit(sending(run.message("same"))))
    await all_advance(store, run, other)
    assert not contended.done()
    await users.commit()
    await contended
    assert len(await store.messages(run.run_id)) == 1


async def test_a_contended_bundle_of_a_large_group_is_found_and_the_rest_is_written(
    store: PostgresStore, users: Users
) -> None:
    run = await begun(store)
    others = [await begun(store) for _ in range(50)]
    await users.write(sending(run.message("same")))
    answers = [store.commit(other.step()) for other in others[:25]]
    contended = waiting(store.commit(sending(run.message("same"))))
    answers += [store.commit(other.step()) for other in others[25:]]
    async with asyncio.timeout(SOON_S):
        await asyncio.gather(*answers)
    assert not contended.done()
    await users.commit()
    await contended


async def test_later_bundles_of_a_run_do_not_overtake_a_contended_one(
    store: PostgresStore, users: Users
) -> None:
    target, run, other = await begun(store), await begun(store), await begun(store)
    await users.write(sending(target.message("same")))
    steps = [waiting(store.commit(together(run.step(), sending(target.message("same")))))]
    steps.append(waiting(store.commit(run.step())))
    await all_advance(store, other)
    # By now it is contended, and these find it there.
    steps.append(waiting(store.commit(run.step())))
    steps.append(waiting(store.commit(run.finish())))
    await all_advance(store, other)
    assert not any(step.done() for step in steps)
    await users.commit()
    async with asyncio.timeout(SOON_S):
        await asyncio.gather(*steps)
    found = await store.run(run.run_id)
    assert found is not None
    assert found.head == run.journal.head


async def test_a_contended_bundle_that_is_rejected_rejects_those_behind_it(
    store: PostgresStore, users: Users
) -> None:
    run, other = await begun(store), await begun(store)
    child = Driven(key="k")
    await users.write(Driven(key="k").start())
    steps = [waiting(store.commit(together(run.step(), child.start())))]
    steps.append(waiting(store.commit(run.step())))
    await all_advance(store, other)
    steps.append(waiting(store.commit(run.step())))
    await users.commit()
    outcomes = await asyncio.gather(*steps, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [RunExists, StaleFence, StaleFence]
    await store.commit((await run.reload(store)).step())


async def test_contended_bundles_of_different_transactions_do_not_wait_for_each_other(
    store: PostgresStore, emptied_postgres: str
) -> None:
    run = await begun(store)
    holders = [Users(emptied_postgres, store) for _ in range(5)]
    for number, holder in enumerate(holders):
        await holder.write(sending(run.message(str(number))))
    sent = [waiting(store.commit(sending(run.message(str(n))))) for n in range(5)]
    await all_advance(store, run)
    for holder, message in zip(reversed(holders), reversed(sent), strict=True):
        assert not message.done()
        await holder.commit()
        async with asyncio.timeout(SOON_S):
            await message


async def test_a_store_that_closes_gives_up_contended_bundles(emptied_postgres: str) -> None:
    store = await open_postgres(emptied_postgres)
    users = Users(emptied_postgres, store)
    await users.write(Driven(key="k").start())
    second = Driven(key="k")
    contended = waiting(store.commit(second.start()))
    await all_advance(store)
    async with asyncio.timeout(60):
        await store.close()
    with pytest.raises(StoreClosed, match="another transaction"):
        await contended
    assert second.fence.broken
    await users.roll_back()


async def test_a_contended_bundle_in_doubt_is_stored_exactly_once(
    store: PostgresStore, users: Users
) -> None:
    """The connection is lost during its commit, the server commits late, and meanwhile its own rows block it."""
    other, run, slow = await begun(store), Driven(key="k"), SlowCommit(1.0)
    fail_once(store, slow)
    starting = waiting(store.commit(run.start()))
    await asyncio.sleep(0.3)
    await all_advance(store, other)
    assert not starting.done()
    await slow.wait_ended()
    async with asyncio.timeout(SOON_S):
        await starting
        await store.commit(run.first_step())


class Locks:
    """Applies a group unless it contains a locked bundle."""

    def __init__(self, *held: Bundle) -> None:
        self.held = set(held)
        self.tries: list[int] = []

    async def apply(self, group: Group) -> Rejected:
        self.tries.append(group.size)
        if not self.held.isdisjoint(group.bundles):
            raise Contended("a lock timeout")
        return {}


async def test_contended_bundles_are_found_by_halving_the_group() -> None:
    runs = [Driven() for _ in range(64)]
    bundles = [run.start() for run in runs]
    locks = Locks(bundles[40])
    outcomes = await write_async(PendingWrites(bundles), locks.apply)
    assert [n for n, outcome in enumerate(outcomes) if isinstance(outcome, Undecided)] == [40]
    assert [outcome for outcome in outcomes if not isinstance(outcome, Undecided)] == [None] * 63
    assert len(locks.tries) <= 2 * 6 + 1, "not one by one"


Writes = Callable[[Driven, Bundle], None]


def publishes(run: Driven, bundle: Bundle) -> None:
    bundle.publish(run.run_id, "progress", b"1", 1)


def finishes(run: Driven, bundle: Bundle) -> None:
    bundle.finish_work(run.run_id, run.work().step, "token")


def forwards(run: Driven, bundle: Bundle) -> None:
    bundle.forward(run.run_id, run.guid("m"), Driven().run_id)


def enqueues(run: Driven, bundle: Bundle) -> None:
    bundle.enqueue(run.message("m"))


@pytest.mark.parametrize("writes", [publishes, finishes, forwards, enqueues])
async def test_bundles_that_share_a_conflict_key_keep_their_order(writes: Writes) -> None:
    run = Driven()
    held, behind, free = Bundle(), Bundle(), Driven().start()
    writes(run, held)
    writes(run, behind)
    locks = Locks(held)
    outcomes = await write_async(PendingWrites([held, free, behind]), locks.apply)
    assert [type(outcome) for outcome in outcomes] == [Undecided, type(None), Undecided]
