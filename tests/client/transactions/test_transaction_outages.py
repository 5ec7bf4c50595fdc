"""Transactional tasks while Postgres is down, or goes down during a transaction."""

import asyncio
from typing import Any

import pytest

import perdure
from perdure import Transaction, task, workflow
from perdure.core.journal import events as e
from tests.client.engines import opened, recorded, store_of, until

pytestmark = pytest.mark.postgres

ATTEMPTS: list[int] = []


@task(transactional=True, name="outages.note")
async def note(tx: Transaction, kill: bool) -> int:
    ATTEMPTS.append(perdure.info().attempt)
    await tx.execute("INSERT INTO notes VALUES ($1)", len(ATTEMPTS))
    if kill and len(ATTEMPTS) == 1:
        await tx.execute("SELECT pg_terminate_backend(pg_backend_pid())")
    return len(ATTEMPTS)


@workflow(name="outages.noting")
async def noting(kill: bool) -> int:
    return await note(kill)


@pytest.fixture(autouse=True)
def _nothing_begun() -> None:
    ATTEMPTS.clear()


async def notes(engine: perdure.Engine) -> list[int]:
    async with engine.transaction() as tx:
        return [row["number"] for row in await tx.fetch("SELECT number FROM notes")]


async def make_table(engine: perdure.Engine) -> None:
    async with engine.transaction() as tx:
        await tx.execute("CREATE TABLE notes (number integer)")


async def test_a_body_does_not_begin_before_its_transaction_has_a_connection(
    emptied_postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(emptied_postgres) as engine:
        await make_table(engine)
        pool: Any = store_of(engine)._transactions
        refusals: list[str] = []
        is_back = asyncio.Event()
        take = pool.take

        async def refuse(**options: Any) -> Any:
            if is_back.is_set():
                return await take(**options)
            refusals.append("refused")
            raise perdure.TransactionInterrupted("the server can't be reached", "wait")

        monkeypatch.setattr(pool, "take", refuse)
        run = await engine.start(noting(False))
        await until(lambda: len(refusals) >= 3)
        assert ATTEMPTS == []
        is_back.set()
        assert await run.result(60) == 1
        assert ATTEMPTS == [1]
        assert await notes(engine) == [1]


async def test_a_connection_that_is_lost_after_the_body_began_is_a_journaled_doubt(
    emptied_postgres: str,
) -> None:
    async with opened(emptied_postgres) as engine:
        await make_table(engine)
        run = await engine.start(noting(True))
        assert await run.result(60) == 2
        assert ATTEMPTS == [1, 2]
        assert await notes(engine) == [2]
        posted = await recorded(engine, run, e.Posted)
        assert [event.label for event in posted] == ["stopped: retry"]
        started = await recorded(engine, run, e.InvokeStarted)
        assert [event.attempt for event in started] == [1, 2]


async def test_a_connection_that_was_lost_while_idle_is_replaced_before_the_body_begins(
    emptied_postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.store.postgres.connections.pool.FRESH_S", -1)
    async with opened(emptied_postgres) as engine:
        await make_table(engine)
        pool: Any = store_of(engine)._transactions
        answering = pool._answering

        async def lose(connection: Any) -> Any:
            await store_of(engine)._use(
                lambda other: other.execute(
                    "SELECT pg_terminate_backend($1)", connection.get_server_pid()
                )
            )
            return await answering(connection)

        monkeypatch.setattr(pool, "_answering", lose)
        run = await engine.start(noting(False))
        assert await run.result(60) == 1
        assert ATTEMPTS == [1]
        assert await recorded(engine, run, e.Posted) == []
