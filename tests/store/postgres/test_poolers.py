"""Opens a store behind pgbouncer, if that is installed."""

import asyncio

import pytest

from perdure import Engine, Signal, Transaction, task, workflow
from perdure.core.errors import StoreUnavailable
from tests.client.engines import opened
from tests.pgbouncer import PGBOUNCER, pooled

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.skipif(PGBOUNCER is None, reason="pgbouncer is not installed"),
]


@workflow(name="poolers.brief")
async def brief(number: int) -> int:
    return number


more = Signal("more", int)


@task(name="poolers.queued", queue="poolers")
async def queued(number: int) -> int:
    return number


@task(name="poolers.write", transactional=True)
async def write(tx: Transaction, number: int) -> int:
    await tx.execute("INSERT INTO notes VALUES ($1)", number)
    return number


@workflow(name="poolers.steps")
async def steps(number: int) -> int:
    return await write(number) + await queued(number) + await more.receive()


async def test_an_engine_works_behind_a_pooler_that_gives_each_connection_a_session(
    fresh_postgres: str,
) -> None:
    with pooled(fresh_postgres, "session") as url:
        async with opened(url) as engine:
            assert await (await engine.start(brief(1), key="one")).result(60) == 1


async def test_engines_without_prepared_statements_work_behind_a_pooler_that_shares_sessions(
    fresh_postgres: str,
) -> None:
    with pooled(fresh_postgres, "transaction", sessions=4) as pooler:
        url = f"{pooler}?statement_cache_size=0"
        async with opened(url, queues=("poolers",)) as engine, opened(url) as other:
            async with engine.transaction() as tx:
                await tx.execute("CREATE TABLE notes (number INTEGER)")

            async def use(number: int) -> int:
                run = await (engine if number % 2 else other).start(steps(number))
                await run.describe()
                await run.signal(more, number)
                return await run.result(60)

            assert await asyncio.gather(*map(use, range(20))) == [3 * n for n in range(20)]
            async with other.transaction() as tx:
                assert await tx.fetch_value("SELECT count(*) FROM notes") == 20


@pytest.mark.parametrize("options", ["", "?statement_cache_size=0"])
async def test_a_pooler_that_refuses_transactions_is_refused_with_a_remedy(
    fresh_postgres: str, options: str
) -> None:
    async with opened(fresh_postgres):
        pass  # with a schema, opening needs no transaction
    said = r"transaction began .*: use pool_mode=session"
    with pooled(fresh_postgres, "statement") as url, pytest.raises(StoreUnavailable, match=said):
        await Engine(url + options).open()


async def test_a_pooler_that_loses_prepared_statements_is_refused_with_a_remedy(
    fresh_postgres: str,
) -> None:
    with pooled(fresh_postgres, "transaction") as url:
        said = r"^.* (does not|already) exists?\): append \?statement.*pool_mode=session"
        for _ in ("first", "again, with what the first left in the sessions"):
            with pytest.raises(StoreUnavailable, match=said):
                await Engine(url).open()
