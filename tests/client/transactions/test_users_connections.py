"""Runs and signals that commit with a transaction of the user's own, on the user's own connection."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

import perdure
from perdure import (
    Engine,
    Handle,
    KeyReused,
    NotCommitted,
    Signal,
    Transaction,
    TransactionOver,
    task,
    workflow,
)
from perdure.core.journal import events as e
from tests.client.engines import opened, recorded, store_of, until
from tests.store.postgres.test_store import end_connections

pytestmark = [pytest.mark.asyncio, pytest.mark.postgres]

Connection = Any  # asyncpg's is generic only for type checkers

news = Signal("news", str)


@workflow
async def hear_news(who: str) -> str:
    return f"{who} heard {await news.receive()}"


@pytest.fixture
async def engine(emptied_postgres: str) -> AsyncIterator[Engine]:
    async with opened(emptied_postgres) as engine:
        async with engine.transaction() as tx:
            await tx.execute("CREATE TABLE IF NOT EXISTS letters (id integer, note text)")
            await tx.execute("DELETE FROM letters")
        yield engine


@pytest.fixture
async def connection(emptied_postgres: str) -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(emptied_postgres)
    yield connection
    await connection.close()


async def letters(engine: Engine) -> list[int]:
    async with engine.transaction() as tx:
        return [row["id"] for row in await tx.fetch("SELECT id FROM letters ORDER BY id")]


async def test_a_row_a_run_and_a_signal_appear_with_the_users_commit(
    engine: Engine, connection: Connection
) -> None:
    waiting = await engine.start(hear_news("ann"))
    async with connection.transaction():
        await connection.execute("INSERT INTO letters VALUES (1)")
        async with engine.transaction(connection=connection) as tx:
            await tx.execute("INSERT INTO letters VALUES ($1)", 2)
            run = await engine.start(hear_news("bob"), key="bob")
            again = await engine.start(hear_news("bob"), key="bob")
            await run.signal(news, "it")
            await waiting.signal(news, "that")
            for ask in (run.result, waiting.result):
                with pytest.raises(NotCommitted):
                    await ask()
        assert again.run_id == run.run_id
        for look in (run.result, run.status, run.published):
            with pytest.raises(NotCommitted, match="not committed yet"):
                await look()
        assert await letters(engine) == []
    assert await run.result(60) == "bob heard it"
    assert await again.result(60) == "bob heard it"
    assert await waiting.result(60) == "ann heard that"
    assert await letters(engine) == [1, 2]
    # No host owned it before it was stored.
    assert len(await recorded(engine, run, e.ExecutionStarted)) == 1


async def test_a_key_that_is_wanted_twice_at_once_is_one_run_on_the_users_connection(
    engine: Engine, connection: Connection
) -> None:
    async with connection.transaction(), engine.transaction(connection=connection):
        calls = [hear_news("bob"), hear_news("bob")]
        run, again = await engine.start_many(calls, keys=["bob", "bob"])
    assert again.run_id == run.run_id
    await run.signal(news, "it")
    assert await run.result(timeout=60) == "bob heard it"


async def test_nothing_appears_with_the_users_rollback(
    engine: Engine, connection: Connection
) -> None:
    waiting = await engine.start(hear_news("ann"))
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute("INSERT INTO letters VALUES (1)")
    async with engine.transaction(connection=connection):
        run = await engine.start(hear_news("bob"), key="bob")
        await waiting.signal(news, "nothing")
    await transaction.rollback()
    with pytest.raises(NotCommitted, match="rolled back"):
        await run.result()
    assert await letters(engine) == []
    assert await store_of(engine).messages(waiting.run_id) == []
    await waiting.signal(news, "this")
    assert await waiting.result() == "ann heard this"


async def test_a_key_that_exists_gives_the_same_run(engine: Engine, connection: Connection) -> None:
    before = await engine.start(hear_news("ann"), key="k")
    async with connection.transaction(), engine.transaction(connection=connection):
        same = await engine.start(hear_news("ann"), key="k")
        with pytest.raises(KeyReused):
            await engine.start(hear_news("bob"), key="k")
    assert same.run_id == before.run_id
    await same.signal(news, "it")
    assert await same.result() == "ann heard it"


async def test_rerun_on_a_users_connection_takes_the_key_over_with_its_commit(
    engine: Engine, connection: Connection
) -> None:
    before = await engine.start(hear_news("ann"), key="k")
    await before.cancel()
    with pytest.raises(perdure.RunCancelled):
        await before.result(60)
    transaction = connection.transaction()
    await transaction.start()
    async with engine.transaction(connection=connection):
        lost = await engine.start(hear_news("bob"), key="k", if_ended="rerun")
    await transaction.rollback()
    assert (await engine.start(hear_news("ann"), key="k")).run_id == before.run_id
    async with connection.transaction(), engine.transaction(connection=connection):
        again = await engine.start(hear_news("bob"), key="k", if_ended="rerun")
    assert len({before.run_id, lost.run_id, again.run_id}) == 3
    await again.signal(news, "it")
    assert await again.result(60) == "bob heard it"


async def test_a_connection_without_a_transaction_is_refused(
    engine: Engine, connection: Connection
) -> None:
    async def join(what: object) -> None:
        async with engine.transaction(connection=what):
            pytest.fail("it was let in")

    with pytest.raises(TransactionOver, match="in no transaction"):
        await join(connection)
    with pytest.raises(perdure.InputError, match="not a connection of asyncpg"):
        await join("postgresql://")


async def test_failed_block_leaves_nothing_and_the_outer_transaction_continues(
    engine: Engine, connection: Connection
) -> None:
    async def fail() -> None:
        async with engine.transaction(connection=connection) as tx:
            await tx.execute("INSERT INTO letters VALUES (2)")
            await engine.start(hear_news("bob"), key="bob")
            raise ZeroDivisionError

    async with connection.transaction():
        await connection.execute("INSERT INTO letters VALUES (1)")
        with pytest.raises(ZeroDivisionError):
            await fail()
        async with engine.transaction(connection=connection):
            await engine.start(hear_news("ann"), key="ann")
    assert await letters(engine) == [1]
    assert await store_of(engine).run_by_key("", "hear_news", "bob") is None
    assert await store_of(engine).run_by_key("", "hear_news", "ann") is not None


async def test_a_statement_that_fails_fails_its_block_and_no_more(
    engine: Engine, connection: Connection
) -> None:
    async def hush_up() -> None:
        async with engine.transaction(connection=connection) as tx:
            await engine.start(hear_news("bob"), key="bob")
            with pytest.raises(perdure.StatementFailed):
                await tx.execute("SELECT nonsense")

    async with connection.transaction():
        await connection.execute("INSERT INTO letters VALUES (1)")
        with pytest.raises(TransactionOver, match="nonsense"):
            await hush_up()
    assert await letters(engine) == [1]
    assert await store_of(engine).run_by_key("", "hear_news", "bob") is None


async def test_a_transaction_that_has_failed_is_not_joined(
    engine: Engine, connection: Connection
) -> None:
    transaction = connection.transaction()
    await transaction.start()
    with pytest.raises(asyncpg.UndefinedColumnError):
        await connection.execute("SELECT nonsense")
    with pytest.raises(TransactionOver, match="earlier statement"):
        async with engine.transaction(connection=connection):
            pytest.fail("it was let in")
    await transaction.rollback()


@pytest.mark.parametrize("has_perdure", [False, True])
async def test_a_connection_to_another_database_is_refused(
    engine: Engine, connection: Connection, emptied_postgres: str, has_perdure: bool
) -> None:
    """Even if that has Perdure's tables: no host of this engine would ever find the run."""
    name = "perdure_elsewhere"
    url = f"{emptied_postgres.rpartition('/')[0]}/{name}"
    await connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
    await connection.execute(f"CREATE DATABASE {name}")
    if has_perdure:
        async with Engine(url):
            pass
    elsewhere = await asyncpg.connect(url)
    try:
        async with elsewhere.transaction():
            with pytest.raises(perdure.InputError, match="not to the database"):
                async with engine.transaction(connection=elsewhere):
                    pytest.fail("it was let in")
            assert await elsewhere.fetchval("SELECT 1") == 1, "it goes on"
    finally:
        await elsewhere.close()
        await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


async def test_one_inside_another_is_refused(engine: Engine, connection: Connection) -> None:
    async with connection.transaction(), engine.transaction(connection=connection):
        for inner in (engine.transaction(), engine.transaction(connection=connection)):
            with pytest.raises(perdure.InputError, match="inside another one"):
                async with inner:
                    pytest.fail("it was let in")


async def test_only_repeated_starts_and_signals_wait_for_the_open_transaction(
    engine: Engine, connection: Connection
) -> None:
    waiting = await engine.start(hear_news("ann"))
    async with connection.transaction():
        async with engine.transaction(connection=connection):
            first = await engine.start(hear_news("bob"), key="bob")
            await waiting.signal(news, "that", id="same")
        start = asyncio.create_task(engine.start(hear_news("bob"), key="bob"))
        signal = asyncio.create_task(waiting.signal(news, "that", id="same"))
        await asyncio.sleep(0)
        async with asyncio.timeout(60):
            other = await engine.start(hear_news("eve"))
            await other.signal(news, "this")
            assert await other.result() == "eve heard this"
        assert not start.done()
        assert not signal.done()
    async with asyncio.timeout(60):
        second = await start
        await signal
    assert second.run_id == first.run_id
    await first.signal(news, "it")
    assert await first.result(60) == "bob heard it"
    assert await waiting.result(60) == "ann heard that"


# The recipe for SQLAlchemy, as docs/how-to/transactions.md has it


async def place_letter(session: AsyncSession, engine: Engine, who: str) -> Handle[str]:
    await session.execute(text("INSERT INTO letters VALUES (:id)"), {"id": 7})
    raw = await (await session.connection()).get_raw_connection()
    async with engine.transaction(connection=raw.driver_connection):
        return await engine.start(hear_news(who), key=who)


async def test_the_recipe_for_sqlalchemy(engine: Engine, emptied_postgres: str) -> None:
    url = emptied_postgres.replace("postgresql://", "postgresql+asyncpg://")
    database = create_async_engine(url)
    try:
        async with AsyncSession(database) as session, session.begin():
            run = await place_letter(session, engine, "kept")
            with pytest.raises(NotCommitted):
                await run.result()
        await run.signal(news, "it")
        assert await run.result(60) == "kept heard it"
        async with AsyncSession(database) as session:
            lost = await place_letter(session, engine, "lost")
            await session.rollback()
        with pytest.raises(NotCommitted):
            await lost.result()
        assert await letters(engine) == [7]
        assert await store_of(engine).run_by_key("", "hear_news", "lost") is None
    finally:
        await database.dispose()


async def test_the_recipe_needs_a_statement_first(engine: Engine, emptied_postgres: str) -> None:
    """SQLAlchemy begins a transaction with the first statement, and not before."""
    database = create_async_engine(
        emptied_postgres.replace("postgresql://", "postgresql+asyncpg://")
    )
    try:
        async with AsyncSession(database) as session:
            raw = await (await session.connection()).get_raw_connection()
            with pytest.raises(TransactionOver, match="begin one on it first"):
                async with engine.transaction(connection=raw.driver_connection):
                    pytest.fail("it was let in")
    finally:
        await database.dispose()


# What the database interrupts

bodies = 0
may_end: asyncio.Event


@task(transactional=True)
async def write_slowly(tx: Transaction, number: int) -> int:
    global bodies  # noqa: PLW0603 - a body can only reach what is global
    bodies += 1
    await tx.execute("INSERT INTO letters VALUES ($1)", number)
    await may_end.wait()
    await tx.execute("UPDATE letters SET note = 'whole' WHERE id = $1", number)
    return number


@workflow
async def writing_slowly() -> int:
    return await write_slowly(9)


async def test_task_whose_connection_ends_is_retried_and_journaled(
    engine: Engine, emptied_postgres: str
) -> None:
    global bodies, may_end
    bodies, may_end = 0, asyncio.Event()
    run = await engine.start(writing_slowly())
    await until(lambda: bodies == 1)
    await asyncio.sleep(0.05)
    await end_connections(emptied_postgres)
    may_end.set()
    assert await run.result(60) == 9
    assert bodies == 2
    assert await letters(engine) == [9]
    assert len(await recorded(engine, run, e.InvokeStarted)) == 2
    (posted,) = await recorded(engine, run, e.Posted)
    assert posted.label.startswith("stopped: retry")
