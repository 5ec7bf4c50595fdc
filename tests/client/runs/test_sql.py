"""Queries of users, and the views that they read: what the views have equals what the engine says."""

from typing import Any

import pytest

import perdure
from perdure import (
    Engine,
    ForbiddenStatement,
    GraphProgram,
    InputError,
    Signal,
    SqlRows,
    task,
    workflow,
)
from perdure.core.errors import StatementFailed
from perdure.core.journal import events as e
from tests.client.engines import opened, store_of, until_recorded, until_store
from tests.client.programs.deployable import adding

word = Signal("word", str)


@task(name="sql.charge")
async def charge() -> None:
    pass


@task(name="sql.fail", retry=perdure.Retry(attempts=2, first=0.001))
async def fail() -> None:
    raise ValueError("no address")


@task(name="sql.elsewhere", queue="elsewhere")
async def elsewhere() -> None:
    pass


@workflow(name="sql.child")
async def child() -> None:
    await charge()


@workflow(name="sql.doing")
async def doing() -> None:
    await charge()
    await child()
    try:
        await fail()
    except ValueError:
        await perdure.gather(word.receive(), perdure.sleep(3600), elsewhere())


hooked = GraphProgram[..., int](adding("sql.hooked", ""))


async def view(engine: Engine, name: str, run_id: str, columns: str = "*") -> list[tuple[Any, ...]]:
    query = f"SELECT {columns} FROM perdure_v1_{name} WHERE run_id = $1 ORDER BY 1, 2, 3"
    return (await engine.sql(query, run_id)).rows


async def test_the_views_say_what_the_engine_says(engine_url: str) -> None:
    async with opened(engine_url) as engine:
        run = await engine.start(doing(), key="order-1", tags={"customer": "acme"}, scope="prod")
        await until_recorded(engine, run, e.ExecutionAwaiting, 4)
        graph = await engine.start(hooked(x=1, k="a"))

        async def is_hooked() -> bool:
            return bool((await graph.waits()).hooks)

        await until_store(is_hooked)
        (summary,) = (await engine.runs(key_prefix="order-1")).runs
        columns = "run_id, scope, program, version, key, status, entries"
        assert await view(engine, "runs", run.run_id, columns) == [
            (run.run_id, "prod", "sql.doing", "", "order-1", summary.status, summary.entries)
        ]
        assert await view(engine, "tags", run.run_id) == [(run.run_id, "customer", "acme")]
        entries = await store_of(engine).entries(run.run_id)
        assert await view(engine, "history", run.run_id, "seq, at_ms, type") == [
            (entry.seq, entry.at_ms, type(entry.event).__name__) for entry in entries
        ]
        assert dict(await pairs(engine, "accounts", run.run_id, "account, balance")) == (
            await store_of(engine).balances(run.run_id)
        )
        assert await view(engine, "steps", run.run_id, "step, name, kind, status, attempts") == [
            ("root.0", "sql.charge", "function", "completed", 1),
            ("root.1", "sql.child", "run", "completed", 1),
            ("root.2", "sql.fail", "function", "failed", 2),
            *[
                (step, name, kind, status, 0)
                for step, name, kind, status in await later_steps(engine, run.run_id)
            ],
        ]
        waits = await run.waits()
        assert sorted(await view(engine, "waits", run.run_id, "kind, step, name")) == sorted(
            [
                *(("signal", each.step, each.name) for each in waits.signals),
                *(("timer", each.step, None) for each in waits.timers),
                *(("task", each.step, each.queue) for each in waits.tasks),
            ]
        )
        assert await view(engine, "waits", graph.run_id, "kind, name, key") == [
            ("signal", each.topic, each.key) for each in (await graph.waits()).hooks
        ]
        found = await engine.sql("SELECT count(*) FROM perdure_v1_hosts")
        assert found.rows == [(1,)]
        assert (await engine.sql("SELECT * FROM perdure_v1_decisions")).rows == []
        for handle in (run, graph):
            await handle.cancel()


async def later_steps(engine: Engine, run_id: str) -> list[tuple[Any, ...]]:
    rows = await view(engine, "steps", run_id, "step, name, kind, status")
    return [row for row in rows if row[0] > "root.2"]


async def pairs(engine: Engine, name: str, run_id: str, columns: str) -> list[tuple[Any, ...]]:
    query = f"SELECT {columns} FROM perdure_v1_{name} WHERE run_id = $1"
    return (await engine.sql(query, run_id)).rows


async def test_a_query_returns_columns_and_at_most_as_many_rows_as_asked_for(
    engine_url: str,
) -> None:
    numbers = (
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10)"
        " SELECT i AS a, i AS b FROM n"
    )
    async with opened(engine_url) as engine:
        found = await engine.sql(numbers, limit=3)
        assert found == SqlRows(("a", "b"), [(1, 1), (2, 2), (3, 3)], is_complete=False)
        assert (await engine.sql(numbers, limit=10)).is_complete


FORBIDDEN = [
    "DELETE FROM orders",
    "INSERT INTO orders VALUES (1)",
    "UPDATE orders SET id = 2",
    "CREATE TABLE more (id integer)",
    "DROP TABLE orders",
    "COMMIT",
    "PRAGMA user_version = 3",
    "ATTACH 'x' AS y",
    "VACUUM",
]


@pytest.mark.parametrize("query", FORBIDDEN)
async def test_a_query_can_not_write(engine_url: str, query: str) -> None:
    async with opened(engine_url) as engine:
        async with engine.transaction() as tx:
            await tx.execute("CREATE TABLE orders (id integer)")
            await tx.execute("INSERT INTO orders VALUES (1)")
        with pytest.raises((ForbiddenStatement, StatementFailed)):
            await engine.sql(query)
        assert (await engine.sql("SELECT id FROM orders")).rows == [(1,)]
        async with engine.transaction() as tx:
            await tx.execute("INSERT INTO orders VALUES (2)")


@pytest.mark.parametrize(
    ("query", "args"),
    [("SELECT 1; SELECT 2", ()), ("SELECT $1", ()), ("SELEC", ()), ("", ()), ("SELECT 1", (2,))],
)
async def test_wrong_queries_are_refused(
    engine_url: str, query: str, args: tuple[object, ...]
) -> None:
    async with opened(engine_url) as engine:
        with pytest.raises((InputError, StatementFailed)):
            await engine.sql(query, *args)
        assert (await engine.sql("SELECT 1 AS one")).rows == [(1,)]


async def test_a_query_ends_after_its_time(engine_url: str) -> None:
    endless = (
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    )
    async with opened(engine_url) as engine:
        with pytest.raises(StatementFailed, match="longer than"):
            await engine.sql(endless, timeout=0.1)
        for limit in (0, 1_000_000, "5"):
            with pytest.raises(InputError):
                await engine.sql("SELECT 1", limit=limit)  # type: ignore[arg-type]
