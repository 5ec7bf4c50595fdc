import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from perdure.core.errors import ForbiddenStatement, InputError, StatementFailed
from perdure.store.opening import open_store
from perdure.store.store import Store
from tests.store.builders import OTHER_HOST, assert_books_balance, begun, raw
from tests.store.children import Child
from tests.store.test_transactions import INSERT, LIMIT_S, make_table, orders

pytestmark = pytest.mark.asyncio

ENDLESS = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"


@pytest.fixture(params=["file", "memory"])
async def sqlite(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    path = f"{tmp_path}/store.db" if request.param == "file" else ":memory:"
    store = await open_store(f"sqlite:///{path}")
    await make_table(store)
    yield store
    await assert_books_balance(store)
    await store.close()


async def test_a_statement_that_never_ends_is_interrupted(sqlite: Store) -> None:
    async def compute() -> None:
        async with sqlite.transaction(0.2) as tx:
            await tx.execute(INSERT, 1, "endless")
            await tx.fetch(ENDLESS)

    async with asyncio.timeout(60):
        with pytest.raises(TimeoutError, match=r"more than 0.2 s"):
            await compute()
        await begun(sqlite)
    assert await orders(sqlite) == []


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TEMP TABLE mine (id integer)",
        "CREATE TRIGGER mine AFTER INSERT ON perdure_run BEGIN SELECT 1; END",
        "CREATE VIEW mine AS SELECT * FROM perdure_run",
        "ALTER TABLE orders RENAME TO perdure_orders",
        'ALTER TABLE orders RENAME /* to what? */ TO "Perdure_Orders"',
        "SELECT * FROM orders WHERE id IN (SELECT seq FROM PERDURE_RUN)",
    ],
)
async def test_statements_that_evade_the_guard_are_refused(sqlite: Store, sql: str) -> None:
    async with sqlite.transaction(LIMIT_S) as tx:
        if "VIEW" in sql:
            # A view may be created, but not read.
            await tx.execute(sql)
            sql = "SELECT * FROM mine"
        with pytest.raises(ForbiddenStatement):
            await tx.execute(sql)


async def test_a_users_trigger_reaches_no_table_of_perdure(sqlite: Store) -> None:
    await begun(sqlite)
    async with sqlite.transaction(LIMIT_S) as tx:
        await tx.execute(
            "CREATE TRIGGER mine AFTER INSERT ON orders BEGIN UPDATE perdure_run SET epoch = 9; END"
        )
        with pytest.raises(ForbiddenStatement):
            await tx.execute(INSERT, 1, "sly")


async def test_a_column_or_a_text_with_perdures_prefix_is_allowed(sqlite: Store) -> None:
    async with sqlite.transaction(LIMIT_S) as tx:
        await tx.execute("ALTER TABLE orders ADD COLUMN perdure_run text")
        await tx.execute("UPDATE orders SET perdure_run = 'perdure_run'")
        await tx.execute(
            "CREATE TRIGGER noting AFTER INSERT ON orders BEGIN"
            " UPDATE orders SET note = note || '!' WHERE id = new.id; END"
        )
        assert await tx.execute(INSERT, 1, "noted") == 1
        await tx.commit([])
    assert await orders(sqlite) == [(1, "noted!")]


@pytest.mark.parametrize(
    ("sql", "args"),
    [
        ("INSERT INTO orders VALUES (?, ?)", (1, "x")),
        ("INSERT INTO orders VALUES (:id, $1)", ("x",)),
        ("INSERT INTO orders VALUES ($1, $2)", (1, object())),
    ],
)
async def test_other_parameters_and_values_are_refused(
    sqlite: Store, sql: str, args: tuple[Any, ...]
) -> None:
    async with sqlite.transaction(LIMIT_S) as tx:
        with pytest.raises(InputError) as error:
            await tx.execute(sql, *args)
        assert error.value.remedy
    assert await orders(sqlite) == []


async def test_the_drivers_own_error_is_the_cause(sqlite: Store) -> None:
    async with sqlite.transaction(LIMIT_S) as tx:
        await tx.execute(INSERT, 1, "first")
        with pytest.raises(StatementFailed, match="UNIQUE") as error:
            await tx.execute(INSERT, 1, "second")
    assert isinstance(error.value.__cause__, apsw.ConstraintError)


async def test_the_guard_does_not_check_perdures_own_statements(sqlite: Store) -> None:
    """Nor can a user's statement reuse one of Perdure's that was prepared before."""
    run = await begun(sqlite)
    for number in range(3):
        async with sqlite.transaction(LIMIT_S) as tx:
            await tx.execute(INSERT, number, "x")
            await tx.commit([run.step()])
        await sqlite.commit(run.step())
    count = "SELECT count(*) FROM perdure_run"
    assert await raw(sqlite, count) == [(1,)]
    async with sqlite.transaction(LIMIT_S) as tx:
        with pytest.raises(ForbiddenStatement):
            await tx.fetch(count)


async def test_a_users_connection_can_not_be_joined(sqlite: Store) -> None:
    with pytest.raises(InputError, match="one writer"):
        await sqlite.join(object())


async def test_a_transaction_waits_for_another_process_that_holds_the_file(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    store = await open_store(url)
    await make_table(store)
    child = Child(url, "hold", "0.5")
    try:
        assert child.hear() == "ready"
        # The wait for the file does not count for the time limit.
        async with store.transaction(0.2) as tx:
            await tx.execute(INSERT, 1, "patient")
            await tx.commit([])
        assert await orders(store) == [(1, "patient")]
    finally:
        child.close()
        await store.close()


@pytest.mark.parametrize("value", [1 << 63, -(1 << 63) - 1, float("nan")])
async def test_a_number_that_would_be_stored_as_another_is_refused(
    sqlite: Store, value: float
) -> None:
    async with sqlite.transaction(LIMIT_S) as tx:
        with pytest.raises(InputError, match=r"argument \$2") as error:
            await tx.execute(INSERT, 1, value)
        assert "1970" not in error.value.remedy
        await tx.execute(INSERT, 1, float("inf"))
        await tx.execute(INSERT, 2, (1 << 63) - 1)
        await tx.commit([])
    assert len(await orders(sqlite)) == 2


async def test_jobs_that_wait_run_between_two_transactions(sqlite: Store) -> None:
    run, order = await begun(sqlite), list[str]()
    may_end = [asyncio.Event() for _ in range(3)]

    async def hold(number: int) -> None:
        async with sqlite.transaction(LIMIT_S) as tx:
            await tx.execute(INSERT, number, "x")
            order.append(f"transaction {number}")
            await may_end[number].wait()
            await tx.commit([])

    async def commit() -> None:
        await sqlite.commit(run.step())
        order.append("commit")

    async def claim() -> None:
        await sqlite.release_runs(OTHER_HOST)
        order.append("claim")

    async with asyncio.TaskGroup() as tasks:
        for number in range(3):
            tasks.create_task(hold(number))
            await asyncio.sleep(0.05)
        given_up = tasks.create_task(claim())
        tasks.create_task(commit())
        tasks.create_task(claim())
        await asyncio.sleep(0.05)
        given_up.cancel()
        assert order == ["transaction 0"]
        may_end[0].set()
        await asyncio.sleep(0.2)
        # The second has the lock, the third waits for it, and the jobs that came after both have run.
        assert sorted(order) == ["claim", "commit", "transaction 0", "transaction 1"]
        may_end[1].set()
        may_end[2].set()
    assert order[-1] == "transaction 2"


async def test_a_transaction_that_stops_waiting_for_the_lock_leaves_it_to_the_next(
    sqlite: Store,
) -> None:
    async def insert(number: int) -> None:
        async with sqlite.transaction(LIMIT_S) as tx:
            await tx.execute(INSERT, number, "x")
            await tx.commit([])

    async with sqlite.transaction(LIMIT_S) as tx:
        await tx.execute(INSERT, 0, "first")
        waiting = [asyncio.create_task(insert(number)) for number in (1, 2, 3)]
        await asyncio.sleep(0.05)
        waiting[0].cancel()
        await tx.commit([])
    waiting[1].cancel()
    async with asyncio.timeout(60):
        await asyncio.wait(waiting)
        await begun(sqlite)
    assert (0, "first") in await orders(sqlite)
    assert (3, "x") in await orders(sqlite)
