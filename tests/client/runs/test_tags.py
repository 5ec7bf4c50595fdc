"""Tags of runs: given at the start and by the program, inherited, and found by lists."""

from typing import Any

import asyncpg
import pytest

import perdure
from perdure import Engine, GraphProgram, InputError, Signal, SyncEngine, task, workflow
from perdure.core.errors import OutsideRun
from perdure.core.graph import model as m
from perdure.core.ids import RunId
from perdure.core.journal import events as e
from tests.client.engines import opened, until_recorded
from tests.client.programs.deployable import graph, quick

go = Signal("go", str)


@task(name="tags.touch")
async def touch() -> None:
    pass


@task(name="tags.tagging_task")
async def tagging_task() -> None:
    perdure.tag(stage="paid")


@workflow(name="tags.child")
async def child() -> None:
    await touch()


@workflow(name="tags.staged")
async def staged() -> None:
    perdure.tag(stage="new", rank=1)
    await touch()
    await child()
    perdure.tag(stage="paid")
    await go.receive()
    await touch()


@workflow(name="tags.looping")
async def looping(left: int) -> int:
    if not left:
        return 0
    perdure.tag(lap=left)
    await touch()
    return await perdure.continue_as_new(looping(left - 1))


summing = GraphProgram[..., int](quick("tags.summing", ""))
keyed = GraphProgram[..., Any](
    graph(
        "tags.keyed",
        m.TriggerNode(name="start", keys={"customer": "x"}),
        m.AwaitNode(name="child", program="tags.summing", input={"x": "1"}),
        m.OutputNode(name="out", value="x"),
        edges="start child out",
        version="",
        x="str",
    )
)


async def found(engine: Engine, **tags: str | int) -> set[RunId]:
    return {run.run_id async for run in engine.iterate_runs(tags=tags)}


async def programs(engine: Engine, **tags: str | int) -> list[str]:
    return sorted([run.program async for run in engine.iterate_runs(tags=tags)])


async def test_a_run_is_found_by_the_tags_of_its_start(engine: Engine) -> None:
    acme = await engine.start(child(), tags={"customer": "acme", "rank": 7})
    several = await engine.start_many([child(), child()], tags={"customer": "other"})
    assert await found(engine, customer="acme") == {acme.run_id}
    assert await found(engine, customer="acme", rank=7) == {acme.run_id}
    assert await found(engine, customer="acme", rank=8) == set()
    assert await found(engine, customer="other") == {run.run_id for run in several}
    for run in (acme, *several):
        await run.result(60)
    assert await found(engine, customer="acme") == {acme.run_id}


async def test_a_tag_of_the_program_replaces_the_value_before(engine: Engine) -> None:
    run = await engine.start(staged(), tags={"stage": "ordered"})
    await until_recorded(engine, run, e.ExecutionAwaiting, 3)
    (summary,) = (await engine.runs(program="tags.staged")).runs
    assert summary.tags == {"rank": "1", "stage": "paid"}
    assert await programs(engine, stage="paid") == ["tags.staged"]
    assert await programs(engine, stage="ordered") == []
    await run.signal(go, "on")
    await run.result(60)
    (summary,) = (await engine.runs(program="tags.staged")).runs
    assert summary.tags == {"rank": "1", "stage": "paid"}


async def test_children_inherit_the_tags_and_the_scope_that_their_parent_has_when_it_starts_them(
    engine: Engine,
) -> None:
    run = await engine.start(staged(), scope="acme/prod", tags={"customer": "acme"})
    await run.signal(go, "on")
    await run.result(60)
    (summary,) = (await engine.runs(parent=run.run_id)).runs
    assert summary.tags == {"customer": "acme", "rank": "1", "stage": "new"}
    assert (summary.scope, summary.program) == ("acme/prod", "tags.child")


async def test_children_of_graphs_inherit_tags_and_the_scope_but_not_search_keys(
    engine: Engine,
) -> None:
    run = await engine.start(keyed(x="bob"), scope="acme", tags={"customer": "acme", "color": "x"})
    await run.result(60)
    (parent,) = (await engine.runs(program="tags.keyed")).runs
    assert parent.tags == {"customer": "bob", "color": "x"}, "the graph's own key counts"
    (summary,) = (await engine.runs(parent=run.run_id)).runs
    assert (summary.program, summary.scope, summary.tags) == (
        "tags.summing",
        "acme",
        {"color": "x"},
    )


async def test_the_tags_of_a_chain_follow_to_its_next_run(engine: Engine) -> None:
    run = await engine.start(looping(2), scope="acme", tags={"customer": "acme"})
    assert await run.result(60) == 0
    chain = list(reversed((await engine.runs(chain=run.run_id)).runs))
    assert [each.tags.get("lap") for each in chain] == ["2", "1", "1"]
    assert {each.tags["customer"] for each in chain} == {"acme"}
    assert {each.scope for each in chain} == {"acme"}


async def test_a_run_that_a_transaction_starts_gets_its_tags_with_the_commit(
    engine_url: str,
) -> None:
    async with opened(engine_url) as engine:
        async with engine.transaction() as tx:
            await tx.execute("CREATE TABLE orders (id integer)")
            run = await engine.start(staged(), scope="prod", tags={"customer": "acme"})
        await run.signal(go, "on")
        await run.result(60)
        (summary,) = (await engine.runs(tags={"customer": "acme"}, program="tags.staged")).runs
        assert (summary.run_id, summary.scope) == (run.run_id, "prod")


async def test_a_front_end_starts_runs_with_tags(shared_url: str) -> None:
    async with opened(shared_url) as host, Engine(shared_url, hosts=False) as front_end:
        run = await front_end.start(child(), tags={"customer": "acme"})
        assert await found(front_end, customer="acme") == {run.run_id}
        await run.result(60)
        assert await found(host, customer="acme") == {run.run_id}


@pytest.mark.postgres
async def test_a_run_that_starts_on_a_connection_of_the_user_gets_its_tags(
    fresh_postgres: str,
) -> None:
    async with opened(fresh_postgres) as engine:
        connection = await asyncpg.connect(fresh_postgres)
        async with connection.transaction(), engine.transaction(connection=connection):
            run = await engine.start(child(), tags={"customer": "acme"})
        await connection.close()
        await run.result(60)
        assert await found(engine, customer="acme") == {run.run_id}


async def test_a_graph_is_started_with_tags_by_its_name(engine_url: str) -> None:
    async with opened(engine_url) as engine:
        await engine.deploy(quick("tags.deployed"))
        await engine.activate("tags.deployed", "1")
        run = await engine.start_graph("tags.deployed", {"x": 1}, tags={"customer": "acme"})
        assert await run.result(60) == 2
        assert await found(engine, customer="acme") == {run.run_id}


def test_plain_code_starts_runs_with_tags_and_lists_them() -> None:
    with SyncEngine("sqlite:///:memory:") as engine:
        run = engine.start(child(), tags={"customer": "acme"})
        run.result(60)
        assert [each.run_id for each in engine.runs(tags={"customer": "acme"}).runs] == [run.run_id]
        assert [each.run_id for each in engine.iterate_runs(status="completed")] == [run.run_id]
        assert engine.count(status="completed").runs == 1
        assert engine.sql("SELECT run_id FROM perdure_v1_runs").rows == [(run.run_id,)]


@pytest.mark.parametrize(
    "tags",
    [
        {"": "x"},
        {"customer": ""},
        {"customer": None},
        {"customer": ["a"]},
        {"customer": "a\0b"},
        {7: "x"},
        "customer",
        {str(number): "x" for number in range(33)},
        {"customer": "x" * 2000},
    ],
)
async def test_wrong_tags_are_refused_and_start_nothing(tags: Any) -> None:
    async with opened("sqlite:///:memory:") as engine:
        with pytest.raises(InputError):
            await engine.start(child(), tags=tags)
        with pytest.raises(InputError):
            await engine.runs(tags=tags)
        assert (await engine.runs()).runs == []


async def test_more_tags_than_a_run_may_have_are_refused_in_the_program() -> None:
    @workflow
    async def many() -> None:
        perdure.tag(**{f"name{number}": "x" for number in range(33)})

    async with opened("sqlite:///:memory:") as engine:
        run = await engine.start(many())
        with pytest.raises(InputError, match="33 tags"):
            await run.result(60)


async def test_a_task_can_not_tag_its_run() -> None:
    @workflow
    async def delegating() -> None:
        await tagging_task()

    async with opened("sqlite:///:memory:") as engine:
        run = await engine.start(delegating())
        with pytest.raises(OutsideRun, match="in a task"):
            await run.result(60)
    with pytest.raises(OutsideRun):
        perdure.tag(stage="paid")
