import asyncio
import os
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any

import pytest

from perdure.core.errors import (
    ForbiddenStatement,
    InputError,
    PerdureError,
    RunExists,
    StaleFence,
    StatementFailed,
    StoreClosed,
    TransactionOver,
)
from perdure.store.opening import open_store
from perdure.store.postgres.store import PostgresStore
from perdure.store.store import Store
from tests.store.builders import (
    HOST,
    NOW,
    OTHER_HOST,
    Driven,
    assert_books_balance,
    assert_typed,
    begun,
    contents,
    raw,
    sending,
    together,
)
from tests.store.children import Child

pytestmark = pytest.mark.asyncio

LIMIT_S = 5.0

MAKE = "CREATE TABLE IF NOT EXISTS orders (id integer PRIMARY KEY, note text)"
DROP = "DROP TABLE IF EXISTS orders"
INSERT = "INSERT INTO orders (id, note) VALUES ($1, $2)"


@pytest.fixture
async def shop(store: Store) -> Store:
    """A store with an empty table of the user's."""
    await make_table(store)
    return store


async def make_table(store: Store) -> None:
    async with store.transaction(LIMIT_S) as tx:
        await tx.execute(DROP)
        await tx.execute(MAKE)
        await tx.commit([])


async def orders(store: Store) -> list[tuple[Any, ...]]:
    return await raw(store, "SELECT id, note FROM orders ORDER BY id")


async def seq_of(store: Store, run: Driven) -> int:
    found = await store.run(run.run_id)
    assert found is not None
    return found.seq


async def test_preparations_are_awaited_in_order_before_the_transaction_begins(shop: Store) -> None:
    awaited: list[str] = []

    async def prepare(name: str) -> None:
        awaited.append(name)

    async with shop.transaction(LIMIT_S) as tx:
        tx.before_begin(lambda: prepare("first"))
        tx.before_begin(lambda: prepare("second"))
        await asyncio.sleep(0)
        assert awaited == []
        await tx.execute(INSERT, 1, "one")
        await tx.execute(INSERT, 2, "two")
        assert awaited == ["first", "second"]


async def test_transaction_whose_preparation_fails_does_not_begin(shop: Store) -> None:
    async def refuse() -> None:
        raise LookupError("the run is lost")

    async with shop.transaction(LIMIT_S) as tx:
        tx.before_begin(refuse)
        with pytest.raises(LookupError, match="the run is lost"):
            await tx.execute(INSERT, 1, "one")
    assert await orders(shop) == []


async def test_rows_and_a_bundle_commit_together(shop: Store) -> None:
    run = await begun(shop)
    async with shop.transaction(LIMIT_S) as tx:
        assert await tx.execute(INSERT, 1, "first") == 1
        step = together(run.step(), sending(run.message("hello")))
        step.put_work(run.fence, run.work())
        await tx.commit([step])
    assert await orders(shop) == [(1, "first")]
    assert await seq_of(shop, run) == run.journal.seq
    assert len(await shop.messages(run.run_id)) == 1
    assert len(await shop.claim_work(HOST, ["gpu"], "token", NOW, 1000, 9)) == 1
    await shop.commit(run.step())


async def test_a_bundle_alone_and_rows_alone_commit_too(shop: Store) -> None:
    run = Driven()
    async with shop.transaction(LIMIT_S) as tx:
        await tx.commit([run.start()])
    async with shop.transaction(LIMIT_S) as tx:
        await tx.execute(INSERT, 1, "alone")
        await tx.commit([])
    assert await seq_of(shop, run) == 1
    assert await orders(shop) == [(1, "alone")]


async def test_several_bundles_commit_together_or_not_at_all(shop: Store) -> None:
    first, second, new = await begun(shop), await begun(shop), Driven(key="new")
    async with shop.transaction(LIMIT_S) as tx:
        await tx.execute(INSERT, 1, "with all")
        await tx.commit([first.step(), new.start(), second.step(), sending(first.message("x"))])
    for run in (first, second, new):
        assert await seq_of(shop, run) == run.journal.seq
    lost = await begun(shop)
    await raw(shop, f"UPDATE {{}}run SET epoch = 9 WHERE id = '{lost.run_id}'")
    before = await contents(shop)
    async with shop.transaction(LIMIT_S) as tx:
        await tx.execute(INSERT, 2, "with none")
        with pytest.raises(StaleFence):
            await tx.commit([first.step(), lost.step(), second.step()])
    assert await contents(shop) == before
    assert await orders(shop) == [(1, "with all")]
    assert first.fence.broken
    assert second.fence.broken


async def test_conflicting_bundles_in_one_transaction_are_refused(shop: Store) -> None:
    async with shop.transaction(LIMIT_S) as tx:
        await tx.execute(INSERT, 1, "lost")
        with pytest.raises(InputError, match="conflict"):
            await tx.commit([Driven(key="k").start(), Driven(key="k").start()])
    assert await orders(shop) == []


async def test_a_transaction_that_is_not_committed_is_rolled_back(shop: Store) -> None:
    async with shop.transaction(LIMIT_S) as tx:
        await tx.execute(INSERT, 1, "forgotten")

    async def fail() -> None:
        async with shop.transaction(LIMIT_S) as tx:
            await tx.execute(INSERT, 2, "failed")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert await orders(shop) == []


async def test_a_stale_bundle_rolls_the_rows_back(shop: Store) -> None:
    run = await begun(shop)
    await shop.take_over(HOST, OTHER_HOST, 1)
    before = await contents(shop)
    step = run.step()
    async with shop.transaction(LIMIT_S) as tx:
        await tx.execute(INSERT, 1, "lost")
        with pytest.raises(StaleFence):
            await tx.commit([step])
    assert await orders(shop) == []
    assert await contents(shop) == before
    assert run.fence.broken
    with pytest.raises(StaleFence):
        await shop.commit(run.step())


async def test_a_bundle_under_a_broken_fence_rolls_the_rows_back(shop: Store) -> None:
    run = await begun(shop)
    run.fence.broken = True
    async with shop.transaction(LIMIT_S) as tx:
        await tx.execute(INSERT, 1, "lost")
        with pytest.raises(StaleFence):
            await tx.commit([run.step()])
    assert await orders(shop) == []


async def test_a_taken_key_rolls_the_rows_back_and_names_its_holder(shop: Store) -> None:
    holder = Driven(key="order-42")
    await shop.commit(holder.start())
    async with shop.transaction(LIMIT_S) as tx:
        await tx.execute(INSERT, 1, "lost")
        with pytest.raises(RunExists) as taken:
            await tx.commit([Driven(key="order-42").start()])
    assert taken.value.run_id == holder.run_id
    assert await orders(shop) == []


async def test_rows_are_plain_dicts_and_parameters_are_numbered(shop: Store) -> None:
    async with shop.transaction(LIMIT_S) as tx:
        await tx.execute("INSERT INTO orders VALUES ($2, $1 || ' $2 ?')", "first", 1)
        await tx.execute("INSERT INTO orders VALUES ($1, NULL), ($2, '$1')", 2, 3)
        assert await tx.fetch("SELECT id, note FROM orders ORDER BY id") == [
            {"id": 1, "note": "first $2 ?"},
            {"id": 2, "note": None},
            {"id": 3, "note": "$1"},
        ]
        assert await tx.fetch_one("SELECT note FROM orders WHERE id = $1", 2) == {"note": None}
        assert await tx.fetch_one("SELECT note FROM orders WHERE id = $1", 9) is None
        assert await tx.fetch_value("SELECT count(*) AS n FROM orders") == 3
        assert await tx.fetch_value("SELECT note FROM orders WHERE id = 9") is None
        assert await tx.execute("UPDATE orders SET note = 'x' WHERE id > $1", 1) == 2
        assert await tx.execute("SELECT 1 AS one") == 0
        assert await tx.execute("CREATE INDEX orders_note ON orders (note)") == 0
        gone = await tx.fetch("DELETE FROM orders WHERE id = 3 RETURNING id")
        assert gone == [{"id": 3}]
        await tx.commit([])
    assert [row[0] for row in await orders(shop)] == [1, 2]


WRONG: list[tuple[str, tuple[Any, ...], type[PerdureError]]] = [
    ("INSERT INTO nowhere VALUES (1)", (), StatementFailed),
    ("SELEKT 1", (), StatementFailed),
    ("INSERT INTO orders VALUES (1, 'again')", (), StatementFailed),
    ("DELETE FROM orders; DELETE FROM orders", (), StatementFailed),
    ("INSERT INTO orders VALUES ($1, $2)", (1,), InputError),
    ("INSERT INTO orders VALUES ($1, 'x')", (7, 8), InputError),
]


@pytest.mark.parametrize(("sql", "args", "kind"), WRONG)
async def test_a_failed_statement_ends_the_transaction_on_both_databases(
    shop: Store, sql: str, args: tuple[Any, ...], kind: type[PerdureError]
) -> None:
    run = await begun(shop)
    async with shop.transaction(LIMIT_S) as tx:
        await tx.execute(INSERT, 1, "first")
        with pytest.raises(kind) as error:
            await tx.execute(sql, *args)
        assert error.value.what
        with pytest.raises(TransactionOver):
            await tx.fetch("SELECT 1 AS one")
        with pytest.raises(TransactionOver):
            await tx.commit([run.step()])
    assert await orders(shop) == []
    assert run.fence.broken
    await shop.commit((await run.reload(shop)).step())


@pytest.mark.parametrize(
    "sql", ["COMMIT", "ROLLBACK", "SAVEPOINT x", "PRAGMA synchronous = OFF", "SET x = 1"]
)
async def test_a_statement_that_would_end_the_transaction_is_refused_and_changes_nothing(
    shop: Store, sql: str
) -> None:
    async with shop.transaction(LIMIT_S) as tx:
        await tx.execute(INSERT, 1, "first")
        with pytest.raises(ForbiddenStatement):
            await tx.execute(sql)
        await tx.execute(INSERT, 2, "second")
        await tx.commit([])
    assert len(await orders(shop)) == 2


async def test_users_statements_can_not_reach_perdures_tables(shop: Store) -> None:
    await begun(shop)
    ours = "perdure." if isinstance(shop, PostgresStore) else "perdure_"
    before = await contents(shop)
    for sql in (
        f"UPDATE {ours}run SET epoch = 9",
        f"DELETE FROM {ours}event",
        f"INSERT INTO orders (id) SELECT seq FROM {ours}event",
        f"DROP TABLE {ours}ledger",
        f"ALTER TABLE {ours}run ADD COLUMN mine integer",
        f"CREATE INDEX mine ON {ours}run (owner)",
        f"CREATE TABLE {ours}mine (id integer)",
        f"SELECT * FROM {ours}run",
    ):
        async with shop.transaction(LIMIT_S) as tx:
            await tx.execute(INSERT, 1, "first")
            with pytest.raises(ForbiddenStatement) as error:
                await tx.execute(sql)
            assert_typed(error.value, "forbidden-statement", "perdure")
    assert await contents(shop) == before
    assert await orders(shop) == []


async def test_values_that_one_database_would_refuse_are_refused(shop: Store) -> None:
    async with shop.transaction(LIMIT_S) as tx:
        with pytest.raises(InputError, match="NUL character"):
            await tx.execute(INSERT, 1, "a\0b")
        await tx.execute(INSERT, 1, "kept")
        await tx.commit([])
    assert await orders(shop) == [(1, "kept")]


async def test_a_transaction_that_is_open_for_too_long_is_interrupted_and_rolled_back(
    shop: Store,
) -> None:
    async def hang() -> None:
        async with shop.transaction(0.1) as tx:
            await tx.execute(INSERT, 1, "hanging")
            await asyncio.sleep(30)

    with pytest.raises(TimeoutError, match=r"more than 0.1 s.*transaction_timeout"):
        await hang()
    assert await orders(shop) == []
    await begun(shop)


async def test_a_transaction_that_swallows_its_interruption_is_over_nevertheless(
    shop: Store,
) -> None:
    run = await begun(shop)

    async def insist() -> None:
        async with shop.transaction(0.1) as tx:
            await tx.execute(INSERT, 1, "stubborn")
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(30)
            # It still runs, and no other writer waits for it.
            async with asyncio.timeout(60):
                await begun(shop)
            with pytest.raises(TimeoutError):
                await tx.execute(INSERT, 2, "late")
            await tx.commit([run.step()])

    with pytest.raises(TimeoutError, match="rolled back"):
        await insist()
    assert await orders(shop) == []


async def test_the_time_before_the_first_statement_does_not_count(shop: Store) -> None:
    async with shop.transaction(0.2) as tx:
        await asyncio.sleep(0.4)
        await begun(shop)
        await tx.execute(INSERT, 1, "late but quick")
        await tx.commit([])
    assert len(await orders(shop)) == 1


async def test_a_users_own_timeout_is_not_reported_as_the_time_limit(shop: Store) -> None:
    async def hurry() -> None:
        async with shop.transaction(LIMIT_S) as tx:
            await tx.execute(INSERT, 1, "mine")
            async with asyncio.timeout(0.01):
                await asyncio.sleep(30)

    with pytest.raises(TimeoutError) as error:
        await hurry()
    assert "transaction" not in str(error.value)
    assert await orders(shop) == []


async def test_a_transaction_takes_no_statement_after_its_end(shop: Store) -> None:
    run = await begun(shop)
    async with shop.transaction(LIMIT_S) as tx:
        await tx.execute(INSERT, 1, "first")
        await tx.commit([run.step()])
        for late in (tx.execute(INSERT, 2, "late"), tx.fetch("SELECT 1"), tx.commit([])):
            with pytest.raises(TransactionOver) as error:
                await late
            assert_typed(error.value, "transaction-over")
    with pytest.raises(TransactionOver):
        await tx.execute(INSERT, 2, "later")
    assert await orders(shop) == [(1, "first")]


async def test_concurrent_statements_are_executed_one_after_the_other(shop: Store) -> None:
    async with shop.transaction(LIMIT_S) as tx:
        await asyncio.gather(*(tx.execute(INSERT, number, "x") for number in range(20)))
        await tx.commit([])
    assert len(await orders(shop)) == 20


async def test_a_cancelled_transaction_writes_nothing_and_blocks_no_other_writer(
    shop: Store,
) -> None:
    async def hang() -> None:
        async with shop.transaction(30) as tx:
            await tx.execute(INSERT, 1, "cancelled")
            await asyncio.sleep(30)

    hanging = asyncio.ensure_future(hang())
    await asyncio.sleep(0.1)
    hanging.cancel()
    with pytest.raises(asyncio.CancelledError):
        await hanging
    async with asyncio.timeout(60):
        await begun(shop)
    assert await orders(shop) == []


async def test_a_cancelled_caller_does_not_revoke_its_commit(shop: Store) -> None:
    run = await begun(shop)

    async def commit() -> None:
        async with shop.transaction(LIMIT_S) as tx:
            await tx.execute(INSERT, 1, "kept")
            asyncio.get_running_loop().call_soon(committing.cancel)
            await tx.commit([run.step()])

    committing = asyncio.ensure_future(commit())
    with pytest.raises(asyncio.CancelledError):
        await committing
    assert await orders(shop) == [(1, "kept")]
    assert await seq_of(shop, run) == run.journal.seq


async def test_a_foreign_key_is_checked_at_once_or_at_the_commit(shop: Store) -> None:
    async def insert(table: str) -> None:
        async with shop.transaction(LIMIT_S) as tx:
            await tx.execute(f"INSERT INTO {table} VALUES (1)")
            await tx.commit([])

    async with shop.transaction(LIMIT_S) as tx:
        for table, rule in (("parts", ""), ("late_parts", " DEFERRABLE INITIALLY DEFERRED")):
            await tx.execute(f"CREATE TABLE {table} (id integer REFERENCES orders (id){rule})")
        await tx.commit([])
    for table in ("parts", "late_parts"):
        with pytest.raises(StatementFailed, match=r"(?i)foreign.?key"):
            await insert(table)
        assert await raw(shop, f"SELECT * FROM {table}") == []
    await begun(shop)
    async with shop.transaction(LIMIT_S) as tx:
        await tx.execute(INSERT, 1, "whole")
        await tx.commit([])
    for table in ("parts", "late_parts"):
        await insert(table)


async def test_writes_that_wait_for_a_transaction_continue_after_it(shop: Store) -> None:
    """Commits, changes and other transactions. On Postgres none of them waits; on SQLite all do."""
    runs = [await begun(shop) for _ in range(20)]
    done: list[str] = []

    async def note(what: str, work: Awaitable[Any]) -> None:
        await work
        done.append(what)

    async def other() -> None:
        async with shop.transaction(LIMIT_S) as tx:
            await tx.execute(INSERT, 2, "second")
            await tx.commit([])

    async with shop.transaction(LIMIT_S) as tx:
        await tx.execute(INSERT, 1, "first")
        waiting = [
            *(asyncio.ensure_future(note("commit", shop.commit(run.step()))) for run in runs),
            asyncio.ensure_future(note("change", shop.release_runs(OTHER_HOST))),
            asyncio.ensure_future(note("transaction", other())),
        ]
        if isinstance(shop, PostgresStore):
            await asyncio.gather(*waiting)
        else:
            await asyncio.wait(waiting, timeout=0.2)
            assert done == []
            assert (await shop.run(runs[0].run_id)) is not None
        await tx.commit([])
    await asyncio.gather(*waiting)
    assert sorted(done) == ["change"] + ["commit"] * 20 + ["transaction"]
    assert len(await orders(shop)) == 2


async def test_more_transactions_than_connections_wait_for_each_other(shop: Store) -> None:
    limit = 8 if isinstance(shop, PostgresStore) else 1
    most = running = 0
    is_full = asyncio.Event()

    async def one(number: int) -> None:
        nonlocal most, running
        async with shop.transaction(60) as tx:
            await tx.execute(INSERT, number, "x")
            running += 1
            most = max(most, running)
            if running == limit:
                is_full.set()
            await is_full.wait()
            running -= 1
            await tx.commit([])

    await asyncio.gather(*map(one, range(20)))
    assert len(await orders(shop)) == 20
    assert most == limit


async def test_a_transaction_sees_the_run_that_holds_a_key(shop: Store) -> None:
    run = Driven(key="order-42")
    await shop.commit(run.start())
    async with shop.transaction(LIMIT_S) as tx:
        found = await tx.run_by_key("", "checkout", "order-42")
        assert found is not None
        assert found.run_id == run.run_id
        assert await tx.run_by_key("", "checkout", "order-43") is None
        assert await tx.run(run.run_id) == found
        entry = await tx.first_entry(run.run_id)
        assert entry is not None
        assert entry.seq == 0


async def test_a_store_that_closes_lets_a_transaction_end_and_begins_no_other(
    shared_url: str,
) -> None:
    store = await open_store(shared_url)
    await make_table(store)
    async with store.transaction(LIMIT_S) as tx, store.transaction(LIMIT_S) as late:
        await tx.execute(INSERT, 1, "first")
        closing = asyncio.ensure_future(store.close())
        await asyncio.sleep(0.05)
        assert not closing.done()
        await tx.commit([])
        await closing
        with pytest.raises(StoreClosed):
            await late.execute(INSERT, 2, "late")
    with pytest.raises(StoreClosed):
        store.transaction(LIMIT_S)
    again = await open_store(shared_url)
    assert await orders(again) == [(1, "first")]
    await again.close()


KILLED_AT = ["before the commit", "after the commit"]


@pytest.mark.parametrize("moment", KILLED_AT)
async def test_a_killed_process_leaves_rows_and_books_or_neither(
    shared_url: str, moment: str
) -> None:
    store = await open_store(shared_url)
    await make_table(store)
    run = await begun(store)
    await store.close()
    child = Child(shared_url, "transaction", moment)
    try:
        assert child.hear() == "ready"
        child.begin()
        assert child.hear() == moment
        os.kill(child.process.pid, 9)
        child.process.wait()
    finally:
        child.close()
    store = await open_store(shared_url)
    async with asyncio.timeout(60):
        rows = await orders(store)
        seq = await seq_of(store, run)
    after = moment == "after the commit"
    assert (len(rows), seq) == ((1, 9) if after else (0, 4))
    await assert_books_balance(store)
    await store.commit((await run.reload(store)).step())
    await store.close()
