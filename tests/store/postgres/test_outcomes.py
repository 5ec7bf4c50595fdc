"""The outcome of a commit without an answer is read from a row that it wrote, which a server does not forget in a
crash."""

import asyncio
from typing import Any

import asyncpg
import pytest

from perdure.core.errors import TransactionInterrupted
from perdure.store.opening import open_store
from perdure.store.statements import statements
from perdure.store.store import Store
from tests.postgres_server import PostgresServer
from tests.store.builders import raw
from tests.store.test_transactions import INSERT, LIMIT_S, make_table, orders

pytestmark = [pytest.mark.asyncio, pytest.mark.postgres]

SQL = statements("postgres")
AGES_MS = 40 * 24 * 60 * 60 * 1000


async def test_settling_an_outcome_returns_the_same_answer_each_time(emptied_postgres: str) -> None:
    await (await open_store(emptied_postgres)).close()
    connection = await asyncpg.connect(emptied_postgres)
    kept = await connection.fetchval(SQL["write_outcome"])
    rolled_back = connection.transaction()
    await rolled_back.start()
    lost = await connection.fetchval(SQL["write_outcome"])
    await rolled_back.rollback()
    for _ in range(2):
        assert await connection.fetchval(SQL["settle_outcome"], kept) == 1
        assert await connection.fetchval(SQL["settle_outcome"], lost) == 0
    await connection.close()


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
async def test_settling_an_outcome_waits_for_a_transaction_that_has_not_ended(
    emptied_postgres: str, end: str
) -> None:
    await (await open_store(emptied_postgres)).close()
    slow = await asyncpg.connect(emptied_postgres)
    asking = await asyncpg.connect(emptied_postgres)
    await slow.execute("BEGIN")
    token = await slow.fetchval(SQL["write_outcome"])
    answer = asyncio.ensure_future(asking.fetchval(SQL["settle_outcome"], token))
    done, _ = await asyncio.wait([answer], timeout=0.3)
    assert not done
    await slow.execute(end)
    assert await answer == (end == "COMMIT")
    await slow.close()
    await asking.close()


async def test_a_transaction_that_is_over_leaves_no_outcome_row(emptied_postgres: str) -> None:
    store = await open_store(emptied_postgres)
    await make_table(store)
    async with store.transaction(LIMIT_S) as tx:
        await tx.execute(INSERT, 1, "kept")
        await tx.commit([])
    async with store.transaction(LIMIT_S) as tx:
        await tx.execute(INSERT, 2, "rolled back")
    assert await orders(store) == [(1, "kept")]
    assert await outcomes(store) == []
    await store.close()


async def test_old_outcome_rows_of_killed_processes_are_removed(emptied_postgres: str) -> None:
    store = await open_store(emptied_postgres)
    await raw(
        store,
        "INSERT INTO {0}outcome SELECT age, 1, extract(epoch FROM now()) * 1000 - age::bigint"
        f" FROM unnest(ARRAY['0', '{AGES_MS}']) AS age",
    )
    await store.close()
    store = await open_store(emptied_postgres)
    assert await outcomes(store) == [("0",)]
    await store.close()


async def test_a_transaction_undone_by_a_crash_is_not_mistaken_for_another(
    private_postgres: PostgresServer,
) -> None:
    """After a crash the server reuses ids of transactions that had not reached its disk."""
    store = await open_store(private_postgres.url())
    await make_table(store)
    async with store.transaction(LIMIT_S) as tx:
        await tx.execute(INSERT, 1, "undone")
        await asyncio.to_thread(private_postgres.restart, immediate=True)
        await use_ids(private_postgres.url())
        with pytest.raises(TransactionInterrupted):
            await tx.commit([])
    assert await order_numbers(private_postgres.url()) == []
    await store.close()


async def use_ids(url: str) -> None:
    """Commit as many transactions as may have been under way."""
    connection: asyncpg.Connection[Any] = await asyncpg.connect(url)
    for _ in range(50):
        await connection.fetchval("SELECT pg_current_xact_id()")
    await connection.close()


async def test_acknowledged_commits_survive_crashes_of_the_server(
    private_postgres: PostgresServer,
) -> None:
    store = await open_store(private_postgres.url())
    await make_table(store)
    acknowledged: list[int] = []
    interrupted: list[int] = []
    is_over = False

    async def insert(writer: int) -> None:
        number = writer
        while not is_over:
            number += 10
            try:
                async with store.transaction(LIMIT_S) as tx:
                    await tx.execute(INSERT, number, "row")
                    await tx.commit([])
                acknowledged.append(number)
            except TransactionInterrupted:
                interrupted.append(number)
                await asyncio.sleep(0.01)

    writers = [asyncio.ensure_future(insert(writer)) for writer in range(10)]
    for _ in range(4):
        await asyncio.sleep(0.7)
        await asyncio.to_thread(private_postgres.restart, immediate=True)
    await asyncio.sleep(0.5)
    is_over = True
    await asyncio.gather(*writers)
    assert acknowledged
    assert interrupted
    assert await order_numbers(private_postgres.url()) == sorted(acknowledged)
    await store.close()


async def order_numbers(url: str) -> list[int]:
    connection: asyncpg.Connection[Any] = await asyncpg.connect(url)
    rows = await connection.fetch("SELECT id FROM orders ORDER BY id")
    await connection.close()
    return [row[0] for row in rows]


async def outcomes(store: Store) -> list[tuple[Any, ...]]:
    return await raw(store, "SELECT token FROM {}outcome ORDER BY token")
