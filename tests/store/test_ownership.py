"""A host that takes runs learns of every run that it took, whatever fails meanwhile."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import asyncpg
import pytest

from perdure.core.errors import StoreClosed, StoreUnavailable
from perdure.core.ids import RunId
from perdure.store.opening import open_store
from perdure.store.postgres.connections.opening import Address
from perdure.store.postgres.ownership import OwnershipChange
from perdure.store.postgres.store import PostgresStore
from tests.store.builders import HOST, OTHER_HOST, assert_books_balance, begun
from tests.store.failing import (
    LOST,
    Failing,
    fail_asking_once,
    lose_after_commit,
    lose_before_commit,
)

pytestmark = [pytest.mark.asyncio, pytest.mark.postgres]

REFUSED = asyncpg.QueryCanceledError("canceling statement due to statement timeout")


@pytest.fixture
async def postgres(emptied_postgres: str) -> AsyncIterator[PostgresStore]:
    store = await open_store(emptied_postgres)
    assert isinstance(store, PostgresStore)
    yield store
    await store.close()


async def begin(store: PostgresStore, count: int) -> list[RunId]:
    return sorted([(await begun(store)).run_id for _ in range(count)])


async def assert_known(store: PostgresStore, taken: list[Any], runs: list[RunId]) -> None:
    assert [run.run_id for run in taken] == runs
    assert taken == await store.open_runs(OTHER_HOST)
    await assert_books_balance(store)


def raising_first(*errors: Exception) -> Callable[[Any], Any]:
    """Make the next reads fail with each of these errors once; later ones succeed."""
    left = list(errors)

    def around(real: Any) -> Any:
        async def asked(*values: Any) -> Any:
            if left:
                raise left.pop(0)
            return await real(*values)

        return asked

    return around


@pytest.mark.parametrize(
    "errors",
    [
        (REFUSED,),
        (asyncpg.ReadOnlySQLTransactionError("cannot execute SELECT FOR NO KEY UPDATE"),),
        (asyncpg.LockNotAvailableError("canceling statement due to lock timeout"), REFUSED),
        (asyncpg.SerializationError("could not serialize access"), REFUSED),
        (LOST, REFUSED, LOST),
        (asyncpg.InterfaceError("cannot perform operation: another operation is in progress"),),
    ],
    ids=lambda errors: "-".join(type(error).__name__ for error in errors),
)
async def test_a_takeover_in_doubt_is_looked_up_until_the_server_answers(
    postgres: PostgresStore, monkeypatch: pytest.MonkeyPatch, errors: tuple[Exception, ...]
) -> None:
    runs = await begin(postgres, 3)
    monkeypatch.setattr(OwnershipChange, "_taken", raising_first(*errors)(OwnershipChange._taken))
    await fail_asking_once(postgres, lose_after_commit)
    await assert_known(postgres, await postgres.take_over(HOST, OTHER_HOST, 2), runs[:2])


async def test_a_takeover_in_doubt_outlasts_a_server_that_refuses_connections(
    postgres: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = await begin(postgres, 3)
    await fail_asking_once(postgres, lose_after_commit)
    refused = raising_first(asyncpg.InvalidPasswordError("password authentication failed"))
    monkeypatch.setattr(Address, "connect", refused(Address.connect))
    await assert_known(postgres, await postgres.take_over(HOST, OTHER_HOST, 2), runs[:2])


async def test_a_lock_timeout_leaves_a_takeover_in_doubt(
    postgres: PostgresStore, emptied_postgres: str
) -> None:
    """The same with a real server: the read waits for a lock and hits the lock timeout."""
    runs = await begin(postgres, 2)
    other = await asyncpg.connect(emptied_postgres)
    await other.execute(
        f"ALTER DATABASE {await other.fetchval('SELECT current_database()')} SET lock_timeout = 20"
    )

    async def lose_and_be_locked(_: Failing, transaction: Any) -> None:
        await transaction.commit()
        await other.execute("BEGIN; SELECT 1 FROM perdure.run FOR UPDATE")
        raise LOST

    try:
        await fail_asking_once(postgres, lose_and_be_locked)
        taking = asyncio.ensure_future(postgres.take_over(HOST, OTHER_HOST, 2))
        _, late = await asyncio.wait([taking], timeout=0.5)
        assert late
        await other.execute("ROLLBACK")
        await assert_known(postgres, await taking, runs)
    finally:
        name = await other.fetchval("SELECT current_database()")
        await other.execute(f"ALTER DATABASE {name} RESET lock_timeout")
        await other.close()


async def test_a_failed_takeover_after_an_uncommitted_one_takes_nothing(
    postgres: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = await begin(postgres, 2)

    async def refuse(*_: Any) -> None:
        raise REFUSED

    await fail_asking_once(postgres, lose_before_commit)
    with monkeypatch.context() as patched:
        taken_before = OwnershipChange._taken

        async def looked(taking: OwnershipChange, connection: Any) -> Any:
            found = await taken_before(taking, connection)
            patched.setattr(type(connection), "fetch", refuse)
            return found

        patched.setattr(OwnershipChange, "_taken", looked)
        with pytest.raises(StoreUnavailable, match="statement timeout"):
            await postgres.take_over(HOST, OTHER_HOST, 2)
    assert await postgres.open_runs(OTHER_HOST) == []
    await assert_known(postgres, await postgres.take_over(HOST, OTHER_HOST, 2), runs)


async def test_a_takeover_survives_several_lost_commits_in_a_row(
    postgres: PostgresStore,
) -> None:
    """The first two commits fail; the third succeeds, and its answer is lost."""
    runs = await begin(postgres, 3)

    async def lose_then_lose_again(_: Failing, __: Any) -> None:
        await fail_asking_once(postgres, lose_again)
        raise LOST

    async def lose_again(_: Failing, __: Any) -> None:
        await fail_asking_once(postgres, lose_after_commit)
        raise LOST

    await fail_asking_once(postgres, lose_then_lose_again)
    await assert_known(postgres, await postgres.take_over(HOST, OTHER_HOST, 2), runs[:2])


async def test_a_takeover_that_the_server_refuses_takes_nothing_and_raises(
    postgres: PostgresStore,
) -> None:
    await begin(postgres, 1)

    async def refuse(_: Failing, transaction: Any) -> None:
        await transaction.rollback()
        raise asyncpg.DiskFullError("could not extend file")

    await fail_asking_once(postgres, refuse)
    with pytest.raises(StoreUnavailable, match="could not extend file"):
        await postgres.take_over(HOST, OTHER_HOST, 1)
    assert await postgres.open_runs(OTHER_HOST) == []


async def test_a_store_that_closes_does_not_wait_for_a_takeover_in_doubt(
    postgres: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begin(postgres, 1)
    looking = asyncio.Event()

    async def refuse(*_: Any) -> None:
        looking.set()
        raise REFUSED

    monkeypatch.setattr(OwnershipChange, "_taken", refuse)
    await fail_asking_once(postgres, lose_after_commit)
    taking = asyncio.ensure_future(postgres.take_over(HOST, OTHER_HOST, 1))
    await looking.wait()
    await postgres.close()
    with pytest.raises(StoreClosed):
        await taking
