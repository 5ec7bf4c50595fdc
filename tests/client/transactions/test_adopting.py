"""Transactional tasks whose rows are written by SQLAlchemy or psycopg, in the commit of the step."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest
from sqlalchemy import Integer, String, select, text
from sqlalchemy.ext.asyncio import (
    AsyncConnection,
    AsyncEngine,
    AsyncSession,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

import perdure
from perdure import Engine, Handle, InputError, Retry, RunStatus, Transaction, task, workflow
from perdure.core.journal import events as e
from tests.client.engines import opened, recorded

pytestmark = [pytest.mark.asyncio, pytest.mark.postgres]


class Base(DeclarativeBase):
    """The users' own tables."""


class Parcel(Base):
    __tablename__ = "parcels"
    number: Mapped[int] = mapped_column(Integer, primary_key=True)
    state: Mapped[str] = mapped_column(String)


@dataclass
class World:
    """What the tasks of a test use, as a program would its globals."""

    engine: Engine
    database: AsyncEngine
    url: str
    open: Callable[[], Awaitable[Any]]
    begun: int = 0

    async def parcels(self) -> dict[int, str]:
        async with AsyncSession(self.database) as session:
            return {each.number: each.state for each in await session.scalars(select(Parcel))}


WORLD: list[World] = []


async def insert(users: Any, number: int, state: str) -> None:
    """Write a row in the style of that kind of connection."""
    if isinstance(users, AsyncSession):
        users.add(Parcel(number=number, state=state))
    elif isinstance(users, AsyncConnection):
        await users.execute(
            text("INSERT INTO parcels VALUES (:number, :state)"), {"number": number, "state": state}
        )
    else:
        await users.execute("INSERT INTO parcels VALUES (%s, %s)", (number, state))


async def end(url: str, pid: int) -> None:
    """Let the server end one connection; returns when it has ended."""
    connection = await asyncpg.connect(url)
    await connection.execute("SELECT pg_terminate_backend($1, 10000)", pid)
    await connection.close()


@task(transactional=True)
async def pack(tx: Transaction, number: int, how: str) -> int:
    world = WORLD[0]
    world.begun += 1
    users = await tx.adopt(await world.open())
    await insert(users, number, how)
    if how == "raises":
        raise LookupError("no paper")
    if how == "commits":
        await users.commit()
    if how.startswith("loses") and world.begun == 1:
        await end(world.url, await tx.fetch_value("SELECT pg_backend_pid()"))
        if how == "loses, and the session notices":
            await insert(users, number + 1, how)
    if how == "starts":
        await world.engine.start(shipping(number), key=f"ship-{number}")
    if isinstance(users, AsyncSession) and how != "again":
        await users.flush()
    # Perdure's statements go to the same transaction.
    seen = await tx.fetch_value("SELECT count(*) FROM parcels WHERE number = $1", number)
    return int(seen)


@workflow
async def packing(number: int, how: str) -> int:
    return await pack(number, how)


@workflow
async def shipping(number: int) -> int:
    return number


ALL_KINDS = ["session-asyncpg", "session-psycopg", "connection-asyncpg", "psycopg"]


@pytest.fixture(params=["session-psycopg", "connection-asyncpg"])
async def world(request: pytest.FixtureRequest, emptied_postgres: str) -> AsyncIterator[World]:
    kind: str = request.param
    driver = "psycopg" if "psycopg" in kind else "asyncpg"
    database = create_async_engine(emptied_postgres.replace("postgresql:", f"postgresql+{driver}:"))
    sessions = async_sessionmaker(database)

    async def open_one() -> Any:
        if kind.startswith("session"):
            return sessions()
        if kind.startswith("connection"):
            return await database.connect()
        return await psycopg.AsyncConnection.connect(emptied_postgres)

    async with opened(emptied_postgres) as engine:
        async with engine.transaction() as tx:
            await tx.execute("CREATE TABLE parcels (number integer PRIMARY KEY, state text)")
        WORLD[:] = [World(engine, database, emptied_postgres, open_one)]
        yield WORLD[0]
    await database.dispose()


@pytest.mark.parametrize("world", ALL_KINDS, indirect=True)
async def test_rows_of_a_session_commit_with_the_step(world: World) -> None:
    run = await world.engine.start(packing(1, "packed"))
    assert await run.result(60) == 1
    assert await world.parcels() == {1: "packed"}
    # The engine forgets the token by which it would have asked for the outcome.
    async with world.engine.transaction() as tx:
        assert await tx.fetch_value("SELECT 1") == 1


async def test_rows_of_a_task_that_raises_are_rolled_back(world: World) -> None:
    run = await world.engine.start(packing(1, "raises"))
    with pytest.raises(LookupError, match="no paper"):
        await run.result(60)
    assert await world.parcels() == {}


async def test_a_run_started_beside_a_session_appears_with_its_rows(world: World) -> None:
    run = await world.engine.start(packing(7, "starts"))
    assert await run.result(60) == 1
    found = await world.engine.start(shipping(7), key="ship-7")
    assert await found.result(60) == 7
    assert await world.parcels() == {7: "starts"}


async def test_a_row_that_the_database_refuses_fails_the_step_alone(world: World) -> None:
    first = await world.engine.start(packing(1, "packed"))
    assert await first.result(60) == 1
    second = await world.engine.start(packing(1, "again"))
    with pytest.raises(Exception, match=r"(?i)duplicate key|could not be flushed"):
        await second.result(60)
    assert await second.status() is RunStatus.FAILED
    assert await world.parcels() == {1: "packed"}


async def test_a_session_that_the_task_commits_itself_fails_the_step(world: World) -> None:
    run = await world.engine.start(packing(1, "commits"))
    with pytest.raises(perdure.TransactionOver, match="ended the transaction of its session"):
        await run.result(60)


@pytest.mark.parametrize("how", ["loses", "loses, and the session notices"])
async def test_a_lost_connection_begins_the_task_again_as_another_attempt(
    world: World, how: str
) -> None:
    run = await world.engine.start(packing(1, how))
    assert await run.result(60) == 1
    assert world.begun == 2
    assert await world.parcels() == {1: how}
    assert len(await recorded(world.engine, run, e.InvokeStarted)) == 2
    (posted,) = await recorded(world.engine, run, e.Posted)
    assert posted.label == "stopped: retry"


async def test_a_session_that_is_open_too_long_is_rolled_back(emptied_postgres: str) -> None:
    settings = perdure.Settings(transaction_timeout=0.3)
    async with opened(emptied_postgres, settings) as engine:
        async with engine.transaction() as tx:
            await tx.execute("CREATE TABLE parcels (number integer, state text)")
        connection = await psycopg.AsyncConnection.connect(emptied_postgres)

        async def linger() -> None:
            async with engine.transaction() as tx:
                users = await tx.adopt(connection)
                await users.execute("INSERT INTO parcels VALUES (1, 'slow')")
                await asyncio.sleep(60)

        with pytest.raises(TimeoutError, match="open for more than"):
            await linger()
        assert connection.closed
        async with engine.transaction() as tx:
            assert await tx.fetch_value("SELECT count(*) FROM parcels") == 0


async def test_a_session_is_refused_after_the_first_statement(world: World) -> None:
    users = await world.open()
    async with world.engine.transaction() as tx:
        await tx.execute("INSERT INTO parcels VALUES ($1, $2)", 1, "packed")
        with pytest.raises(InputError, match="has begun on another connection"):
            await tx.adopt(users)
    await users.close()
    assert await world.parcels() == {1: "packed"}


async def test_adopting_a_non_session_or_an_autocommit_connection_is_refused(world: World) -> None:
    async with world.engine.transaction() as tx:
        with pytest.raises(InputError, match="can't take part"):
            await tx.adopt("postgresql://")
        single = await psycopg.AsyncConnection.connect(world.url, autocommit=True)
        try:
            with pytest.raises(InputError, match="autocommit"):
                await tx.adopt(single)
        finally:
            await single.close()
        # No statement has run yet: the transaction continues.
        await tx.execute("INSERT INTO parcels VALUES ($1, $2)", 1, "packed")
    assert await world.parcels() == {1: "packed"}


async def test_runs_join_a_transaction_that_the_user_commits(world: World) -> None:
    users = await world.open()
    await insert(users, 1, "packed")
    if isinstance(users, AsyncSession):
        await users.flush()
    async with world.engine.transaction(connection=users) as tx:
        await tx.execute("INSERT INTO parcels VALUES ($1, $2)", 2, "packed")
        run = await world.engine.start(shipping(5), key="five")
        with pytest.raises(perdure.NotCommitted):
            await run.result()
    await users.commit()
    await users.close()
    assert await run.result(60) == 5
    assert await world.parcels() == {1: "packed", 2: "packed"}


async def test_a_block_that_raises_leaves_the_users_transaction_as_it_was(world: World) -> None:
    users = await world.open()
    await insert(users, 1, "packed")
    if isinstance(users, AsyncSession):
        await users.flush()

    async def fail() -> None:
        async with world.engine.transaction(connection=users):
            started.append(await world.engine.start(shipping(5), key="five"))
            raise ZeroDivisionError

    started: list[Handle[int]] = []
    with pytest.raises(ZeroDivisionError):
        await fail()
    await users.commit()
    await users.close()
    with pytest.raises(perdure.NotCommitted):
        await started[0].result()
    assert await world.parcels() == {1: "packed"}


async def test_a_session_can_not_be_adopted_on_sqlite(tmp_path: Path) -> None:
    async with opened(f"sqlite:///{tmp_path}/store.db") as engine, engine.transaction() as tx:
        with pytest.raises(InputError, match="only on Postgres"):
            await tx.adopt(object())


@task(transactional=True, retry=Retry(attempts=3, first=0.01))
async def pack_in_turns(tx: Transaction, number: int) -> int:
    world = WORLD[0]
    world.begun += 1
    users = await tx.adopt(await world.open())
    await insert(users, number, f"try {world.begun}")
    if world.begun < 3:
        raise ConnectionRefusedError("the printer is out of paper")
    return world.begun


@workflow
async def packing_in_turns(number: int) -> int:
    return await pack_in_turns(number)


async def test_each_attempt_has_a_session_of_its_own(world: World) -> None:
    run = await world.engine.start(packing_in_turns(1))
    assert await run.result(60) == 3
    assert await world.parcels() == {1: "try 3"}
