import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast

import asyncpg
import pytest

from perdure.core.errors import (
    InputError,
    RunExists,
    StatementFailed,
    TransactionInterrupted,
    TransactionOver,
)
from perdure.store.opening import open_store
from perdure.store.postgres.store import PostgresStore
from perdure.store.postgres.transaction import PostgresTransaction
from tests.postgres_server import PostgresServer
from tests.store.builders import (
    HOST,
    OTHER_HOST,
    Driven,
    assert_books_balance,
    assert_typed,
    begun,
    raw,
    sending,
)
from tests.store.failing import (
    LOST,
    Failing,
    confuse_the_driver,
    deadlock,
    lose_after_commit,
    lose_before_commit,
    refuse_to_serialize,
)
from tests.store.postgres.test_store import end_connections
from tests.store.test_transactions import INSERT, LIMIT_S, make_table, orders, seq_of

pytestmark = [pytest.mark.asyncio, pytest.mark.postgres]

End = Callable[[Any, Any], Awaitable[None]]


@pytest.fixture
async def shop(emptied_postgres: str) -> AsyncIterator[PostgresStore]:
    store = await open_store(emptied_postgres)
    assert isinstance(store, PostgresStore)
    await make_table(store)
    yield store
    await assert_books_balance(store)
    await store.close()


@pytest.fixture
async def users(emptied_postgres: str) -> AsyncIterator["asyncpg.Connection[Any]"]:
    """A connection of the user's own."""
    connection = await asyncpg.connect(emptied_postgres)
    yield connection
    await connection.close()


class Ending:
    """Makes a transaction end on cue."""

    def __init__(self, real: Any, end: End, connection: Any) -> None:
        self._real = real
        self._end = end
        self._connection = connection

    async def commit(self) -> None:
        await self._end(Failing(self._connection, self._end), self._real)

    async def rollback(self) -> None:
        await self._real.rollback()


def fail_at_commit(tx: PostgresTransaction, end: End) -> None:
    tx._transaction = cast("Any", Ending(tx._transaction, end, tx._connection))


@pytest.mark.parametrize("end", [lose_after_commit])
async def test_a_commit_whose_answer_is_lost_is_found_committed(
    shop: PostgresStore, end: End
) -> None:
    run = await begun(shop)
    async with shop.transaction(LIMIT_S) as tx:
        await tx.execute(INSERT, 1, "once")
        fail_at_commit(tx, end)
        await tx.commit([run.step()])
    assert await orders(shop) == [(1, "once")]
    assert await seq_of(shop, run) == run.journal.seq
    await shop.commit(run.step())


@pytest.mark.parametrize(
    "end", [lose_before_commit, confuse_the_driver, refuse_to_serialize, deadlock]
)
async def test_a_commit_that_did_not_succeed_is_reported_as_interrupted(
    shop: PostgresStore, end: End
) -> None:
    run = await begun(shop)
    async with shop.transaction(LIMIT_S) as tx:
        await tx.execute(INSERT, 1, "lost")
        fail_at_commit(tx, end)
        with pytest.raises(TransactionInterrupted) as error:
            await tx.commit([run.step()])
    assert_typed(error.value, "transaction-interrupted")
    assert await orders(shop) == []
    assert run.fence.broken
    await shop.commit((await run.reload(shop)).step())


async def test_the_outcome_of_a_transaction_without_a_run_is_found_too(shop: PostgresStore) -> None:
    async with shop.transaction(LIMIT_S) as tx:
        await tx.execute(INSERT, 1, "kept")
        fail_at_commit(tx, lose_after_commit)
        await tx.commit([])
    assert await orders(shop) == [(1, "kept")]


async def test_a_commit_that_the_server_is_still_executing_is_waited_for(
    shop: PostgresStore,
) -> None:
    run = await begun(shop)
    ending: list[asyncio.Task[None]] = []

    async def slow(_: Any, transaction: Any) -> None:
        """The connection is lost, but the server continues, and commits later."""
        connection = tx._taken
        assert connection is not None
        tx._taken = None  # so that it is not ended

        async def end() -> None:
            await asyncio.sleep(0.3)
            await transaction.commit()
            await connection.close()

        ending.append(asyncio.ensure_future(end()))
        raise LOST

    async with shop.transaction(LIMIT_S) as tx:
        await tx.execute(INSERT, 1, "slow")
        fail_at_commit(tx, slow)
        await tx.commit([run.step()])
    await ending[0]
    shop._transactions.give_back(None)
    assert await orders(shop) == [(1, "slow")]


async def test_a_connection_lost_in_the_middle_interrupts_the_transaction(
    shop: PostgresStore, emptied_postgres: str
) -> None:
    run = await begun(shop)
    async with shop.transaction(LIMIT_S) as tx:
        await tx.execute(INSERT, 1, "lost")
        await end_connections(emptied_postgres)
        with pytest.raises(TransactionInterrupted):
            await tx.execute(INSERT, 2, "lost")
        with pytest.raises(TransactionInterrupted):
            await tx.commit([run.step()])
    async with shop.transaction(LIMIT_S) as tx:
        assert await tx.fetch("SELECT id FROM orders") == []
        await tx.execute(INSERT, 1, "again")
        await tx.commit([(await run.reload(shop)).step()])


async def test_a_server_that_is_down_interrupts_and_comes_back(
    private_postgres: PostgresServer,
) -> None:
    store = await open_store(private_postgres.url())
    await make_table(store)
    async with store.transaction(LIMIT_S) as tx:
        await tx.execute(INSERT, 1, "lost")
        await asyncio.to_thread(private_postgres.restart)
        with pytest.raises(TransactionInterrupted):
            await tx.execute(INSERT, 2, "lost")
    async with asyncio.timeout(60):
        async with store.transaction(LIMIT_S) as tx:
            await tx.execute(INSERT, 1, "again")
            await tx.commit([])
        await begun(store)
    assert await orders(store) == [(1, "again")]
    await store.close()


async def test_no_run_is_locked_while_the_transaction_is_open(
    shop: PostgresStore, users: "asyncpg.Connection[Any]"
) -> None:
    run = await begun(shop)
    lock = "SELECT 1 FROM perdure.run WHERE id = $1 FOR UPDATE NOWAIT"
    async with shop.transaction(LIMIT_S) as tx:
        await tx.execute(INSERT, 1, "first")
        assert await users.fetchval(lock, run.run_id) == 1
        await tx.commit([run.step()])


async def test_the_server_ends_an_idle_transaction(shop: PostgresStore) -> None:
    async with shop.transaction(0.1) as tx:
        await tx.execute(INSERT, 1, "frozen")
        shown = await tx.fetch_value(
            "SELECT current_setting('idle_in_transaction_session_timeout')"
        )
        assert shown == "100ms"
    # It applies to the transaction only: the connection is returned unchanged.
    async with shop.transaction(LIMIT_S) as tx:
        shown = await tx.fetch_value(
            "SELECT current_setting('idle_in_transaction_session_timeout')"
        )
        assert shown == "5s"


async def test_a_cancelled_statement_ends_the_transaction(shop: PostgresStore) -> None:
    async with shop.transaction(LIMIT_S) as tx:
        await tx.execute(INSERT, 1, "first")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await tx.execute("SELECT pg_sleep(30)")
        with pytest.raises(TransactionOver):
            await tx.execute(INSERT, 2, "second")
    assert await orders(shop) == []


async def test_a_constraint_that_waits_for_the_commit_fails_it(shop: PostgresStore) -> None:
    run = await begun(shop)
    async with shop.transaction(LIMIT_S) as tx:
        await tx.execute(
            "ALTER TABLE orders ADD CONSTRAINT parent FOREIGN KEY (id) REFERENCES orders (id)"
        )
        await tx.execute("ALTER TABLE orders ADD COLUMN of integer")
        await tx.execute(
            "ALTER TABLE orders ADD CONSTRAINT whole FOREIGN KEY (of) REFERENCES orders (id)"
            " DEFERRABLE INITIALLY DEFERRED"
        )
        await tx.execute("INSERT INTO orders VALUES (1, 'part', 99)")
        with pytest.raises(StatementFailed, match="whole"):
            await tx.commit([run.step()])
    assert await orders(shop) == []
    await shop.commit((await run.reload(shop)).step())


async def test_transactions_work_without_prepared_statements(emptied_postgres: str) -> None:
    store = await open_store(f"{emptied_postgres}?statement_cache_size=0")
    await make_table(store)
    run = await begun(store)
    async with store.transaction(LIMIT_S) as tx:
        await tx.execute("INSERT INTO orders VALUES (1, 'x')")
        await tx.execute(INSERT, 2, "y")
        assert await tx.fetch_value("SELECT count(*) FROM orders") == 2
        await tx.commit([run.step()])
    await store.close()


# On a connection of the user's own


async def test_a_run_a_message_and_a_row_appear_with_the_users_commit(
    shop: PostgresStore, users: "asyncpg.Connection[Any]"
) -> None:
    other, run = await begun(shop), Driven(owner=None, key="order-42")
    async with users.transaction():
        tx = await shop.join(users)
        await users.execute(INSERT, 1, "mine")
        await tx.execute(INSERT, 2, "through it")
        await tx.write(run.start())
        await tx.write(sending(other.message("hello")))
        found = await tx.run_by_key("", "checkout", "order-42")
        assert found is not None
        assert await shop.run(run.run_id) is None
        assert await shop.claim_runs(OTHER_HOST, 9) == []
    assert len(await orders(shop)) == 2
    assert len(await shop.messages(other.run_id)) == 1
    (claimed,) = await shop.claim_runs(OTHER_HOST, 9)
    assert (claimed.run_id, claimed.owner, claimed.epoch) == (run.run_id, OTHER_HOST, 2)
    await shop.commit((await run.reload(shop)).first_step())


async def test_nothing_appears_with_the_users_rollback(
    shop: PostgresStore, users: "asyncpg.Connection[Any]"
) -> None:
    run = Driven(owner=None)
    transaction = users.transaction()
    await transaction.start()
    await users.execute(INSERT, 1, "mine")
    await (await shop.join(users)).write(run.start())
    await transaction.rollback()
    assert await orders(shop) == []
    assert await shop.run(run.run_id) is None


async def test_a_taken_key_leaves_the_users_transaction_as_it_was(
    shop: PostgresStore, users: "asyncpg.Connection[Any]"
) -> None:
    holder = Driven(key="k")
    await shop.commit(holder.start())
    async with users.transaction():
        tx = await shop.join(users)
        with pytest.raises(RunExists) as taken:
            await tx.write(Driven(owner=None, key="k").start())
        assert taken.value.run_id == holder.run_id
        await tx.write(sending(holder.message("hello")))
        await users.execute(INSERT, 1, "mine")
    assert len(await orders(shop)) == 1
    assert len(await shop.messages(holder.run_id)) == 1


async def test_a_connection_without_a_transaction_is_not_joined(
    shop: PostgresStore, users: "asyncpg.Connection[Any]"
) -> None:
    for stranger in (None, "postgresql://", object()):
        with pytest.raises(InputError, match="connection of asyncpg"):
            await shop.join(stranger)
    with pytest.raises(TransactionOver) as error:
        await shop.join(users)
    assert_typed(error.value, "transaction-over", "in no transaction")
    async with users.transaction():
        tx = await shop.join(users)
    with pytest.raises(TransactionOver):
        await tx.write(Driven(owner=None).start())


async def test_a_pools_connection_may_be_joined(shop: PostgresStore, emptied_postgres: str) -> None:
    run = Driven(owner=None)
    async with (
        asyncpg.create_pool(emptied_postgres, min_size=1, max_size=1) as pool,
        pool.acquire() as connection,
        connection.transaction(),
    ):
        await (await shop.join(connection)).write(run.start())
    assert await shop.run(run.run_id) is not None


async def test_twenty_commits_succeed_while_a_transaction_is_open(shop: PostgresStore) -> None:
    runs = [await begun(shop) for _ in range(20)]
    async with shop.transaction(LIMIT_S) as tx:
        await tx.execute(INSERT, 1, "open")
        for run in runs:
            await shop.commit(run.step())
        counted = await raw(shop, "SELECT count(*) FROM {}run WHERE seq = 9")
        assert counted == [(20,)]
        assert len(await shop.open_runs(HOST)) == 20
        await tx.commit([])


async def test_a_statement_that_runs_is_ended_with_the_time_limit(shop: PostgresStore) -> None:
    """Even if its caller swallows the interruption."""

    async def sleep() -> None:
        async with shop.transaction(0.3) as tx:
            await tx.execute(INSERT, 1, "first")
            await asyncio.shield(asyncio.ensure_future(tx.fetch("SELECT pg_sleep(30)")))

    async with asyncio.timeout(60):
        with pytest.raises(TimeoutError, match=r"open for more than 0.3 s"):
            await sleep()
    assert await orders(shop) == []
    running = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(30)%' AND state = 'active'"
    assert await raw(shop, f"{running} AND pid <> pg_backend_pid()") == [(0,)]


async def test_a_statement_that_exceeds_the_time_limit_says_so(shop: PostgresStore) -> None:
    async with shop.transaction(0.3) as tx:
        tx._stop_clock()
        await tx.execute(INSERT, 1, "first")
        tx._stop_clock()
        with pytest.raises(TimeoutError, match=r"open for more than 0.3 s"):
            await tx.fetch("SELECT pg_sleep(30)")
    assert await orders(shop) == []


async def test_a_commit_waits_for_another_transaction_up_to_the_time_limit(
    shop: PostgresStore, users: "asyncpg.Connection[Any]"
) -> None:
    async with users.transaction():
        await (await shop.join(users)).write(Driven(owner=None, key="k").start())
        async with asyncio.timeout(60):
            async with shop.transaction(0.3) as tx:
                await tx.execute(INSERT, 1, "first")
                with pytest.raises(TimeoutError, match=r"open for more than 0.3 s"):
                    await tx.commit([Driven(key="k").start()])
    assert await orders(shop) == []


async def test_unqualified_names_never_mean_tables_of_perdure(shop: PostgresStore) -> None:
    """The role has the name of Perdure's schema, so that the server looks for tables there first."""
    async with shop.transaction(LIMIT_S) as tx:
        assert await tx.fetch_value("SELECT current_user::text") == "perdure"
        assert await tx.fetch_value("SELECT current_schema()::text") == "public"
        await tx.execute("CREATE TABLE message (id integer)")
        with pytest.raises(StatementFailed, match='"chunk" does not exist'):
            await tx.execute("DELETE FROM chunk")
    async with shop.transaction(LIMIT_S) as tx:
        await tx.execute("CREATE TABLE message (id integer)")
        await tx.execute("INSERT INTO message VALUES (1)")
        await tx.commit([])
    run = await begun(shop)
    await shop.commit(sending(run.message("hello")))
    assert len(await shop.messages(run.run_id)) == 1
    tables = "SELECT schemaname FROM pg_tables WHERE tablename = 'message' ORDER BY 1"
    assert await raw(shop, tables) == [("perdure",), ("public",)]


async def test_a_transaction_leaves_nothing_in_its_session(shop: PostgresStore) -> None:
    sessions = set()
    # The pool gives out the connection that was used last.
    for _ in range(3):
        async with shop.transaction(LIMIT_S) as tx:
            sessions.add(await tx.fetch_value("SELECT pg_backend_pid()"))
            assert await tx.fetch_value("SELECT current_setting('search_path')") == "public"
            assert await tx.fetch_value("SELECT current_setting('work_mem')") != "64kB"
            locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
            assert await tx.fetch_value(locks) == 0
            await tx.execute("SELECT set_config('search_path', 'perdure', false)")
            await tx.execute("SELECT set_config('work_mem', '64kB', false)")
            await tx.execute("SELECT pg_advisory_lock(42)")
            await tx.execute("CREATE TEMPORARY TABLE mine (id integer)")
            await tx.execute("DECLARE mine CURSOR WITH HOLD FOR SELECT 1")
            await tx.commit([])
    assert len(sessions) == 1


async def test_the_driver_decides_which_values_are_valid(shop: PostgresStore) -> None:
    async with shop.transaction(LIMIT_S) as tx:
        assert await tx.fetch_value("SELECT $1::numeric::text", 1 << 70) == str(1 << 70)
        with pytest.raises(StatementFailed, match="expected str, got int"):
            await tx.execute(INSERT, 1, 1 << 70)
