"""Rows by which lists find runs, changed or deleted behind the engine's back: audits name them, loads put them back."""

import logging
from typing import Any

import pytest

import perdure
from perdure import Engine, GraphProgram, Retry, Signal, task, workflow
from perdure.core.graph import model as m
from perdure.core.journal import events as e
from tests.client.engines import (
    assert_sound,
    store_of,
    until_recorded,
    until_store,
)
from tests.client.programs.deployable import graph
from tests.store.builders import raw

go = Signal("damaged_lists.go", str)


@task(name="damaged_lists.hopeless", retry=Retry(attempts=1), on_failure="park")
async def hopeless() -> None:
    raise ValueError("no address")


@task(name="damaged_lists.touch")
async def touch() -> None:
    pass


@workflow(name="damaged_lists.child")
async def child() -> None:
    await go.receive()


@workflow(name="damaged_lists.parent")
async def parent() -> None:
    await child()


@workflow(name="damaged_lists.failing")
async def failing() -> None:
    raise ValueError("no address")


@workflow(name="damaged_lists.staged")
async def staged() -> str:
    perdure.tag(stage="new")
    await touch()
    perdure.tag(stage="paid")
    return await go.receive()


@workflow(name="damaged_lists.parking")
async def parking() -> None:
    await hopeless()


keyed = GraphProgram[..., Any](
    graph(
        "damaged_lists.keyed",
        m.TriggerNode(name="start", keys={"customer": "x"}),
        m.HookNode(name="wait", topic="damaged_lists.go", output={}),
        m.OutputNode(name="out", value="x"),
        edges="start wait out",
        version="",
        x="str",
    )
)


async def findings(engine: Engine) -> list[tuple[str, str]]:
    return [(found.name, found.run_id) for found in (await engine.audit()).findings]


@pytest.mark.parametrize("column", ["parent", "forked_from", "error"])
async def test_a_column_of_lists_that_contradicts_the_journal_is_found(
    engine_url: str, column: str
) -> None:
    async with Engine(engine_url) as engine:
        run = await engine.start(failing())
        with pytest.raises(ValueError, match="no address"):
            await run.result(60)
        await assert_sound(engine)
        change = f"UPDATE {{}}run SET {column} = 'r_{'ab' * 16}' WHERE id = '{run.run_id}'"
        await raw(store_of(engine), change)
        assert await findings(engine) == [(f"{column}_differs", run.run_id)]


async def test_an_error_of_a_run_that_has_not_failed_is_found(engine_url: str) -> None:
    async with Engine(engine_url) as engine:
        run = await engine.start(staged())
        await until_recorded(engine, run, e.ExecutionAwaiting, 2)
        await raw(store_of(engine), "UPDATE {}run SET error = 'ab'")
        assert await findings(engine) == [("error_differs", run.run_id)]


async def test_a_child_that_lost_its_parent_column_and_a_lost_fork_are_found(
    engine_url: str,
) -> None:
    async with Engine(engine_url) as engine:
        run = await engine.start(parent())

        async def has_child() -> bool:
            return bool((await engine.runs(parent=run.run_id)).runs)

        await until_store(has_child)
        (one,) = (await engine.runs(parent=run.run_id)).runs
        done = await engine.start(failing())
        with pytest.raises(ValueError, match="no address"):
            await done.result(60)
        fork = await done.retry()
        await assert_sound(engine)
        await raw(store_of(engine), "UPDATE {}run SET parent = NULL, forked_from = NULL")
        found = set(await findings(engine))
        assert ("parent_differs", one.run_id) in found
        assert ("forked_from_differs", fork.run_id) in found


async def test_tags_of_the_start_that_are_lost_are_found_and_those_of_the_program_may_differ(
    engine_url: str,
) -> None:
    async with Engine(engine_url) as engine:
        run = await engine.start(staged(), tags={"customer": "acme", "stage": "ordered"})
        await until_recorded(engine, run, e.ExecutionAwaiting, 2)
        await assert_sound(engine)
        await raw(store_of(engine), "DELETE FROM {}hook WHERE topic = 'customer'")
        assert await findings(engine) == [("tags_differ", run.run_id)]


async def test_a_load_puts_lost_tags_back_and_says_so(
    shared_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with Engine(shared_url) as engine:
        flow = await engine.start(staged(), tags={"customer": "acme"})
        of_graph = await engine.start(keyed(x="bob"), tags={"color": "red"})
        await until_recorded(engine, flow, e.ExecutionAwaiting, 2)
        await until_store(lambda: is_listed(engine, waiting_for="damaged_lists.go", count=2))
        before = {run.run_id: run.tags for run in (await engine.runs()).runs}
        assert before[flow.run_id] == {"customer": "acme", "stage": "paid"}
        await raw(store_of(engine), "DELETE FROM {}hook WHERE kind = 'key' AND topic <> 'stage'")
        await raw(store_of(engine), "UPDATE {}hook SET key = 'new' WHERE topic = 'stage'")
    caplog.set_level(logging.INFO, "perdure")
    async with Engine(shared_url) as engine:
        await until_store(lambda: is_listed(engine, tags={"stage": "paid"}))
        await until_store(lambda: is_listed(engine, tags={"customer": "bob", "color": "red"}))
        assert {run.run_id: run.tags for run in (await engine.runs()).runs} == before
        for run in (flow, of_graph):
            await engine.handle(run.run_id).signal(go, "on")
            await engine.handle(run.run_id).result(60)
        await assert_sound(engine)
    assert "tag 'stage'" in caplog.text
    assert "search key 'customer'" in caplog.text


async def test_a_load_puts_lost_rows_of_parked_steps_back(
    shared_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with Engine(shared_url) as engine:
        run = await engine.start(parking())
        await until_store(lambda: is_parked(engine))
        before = (await engine.sql(PARKED)).rows
        await raw(store_of(engine), "DELETE FROM {}parked_step")
    async with Engine(shared_url) as engine:
        await until_store(lambda: is_parked(engine))
        assert (await engine.sql(PARKED)).rows == before
        await engine.handle(run.run_id).skip_step("root.0")
        await engine.handle(run.run_id).result(60)
        assert not await is_parked(engine)
        await assert_sound(engine)
    assert "parked step root.0" in caplog.text


PARKED = "SELECT run_id, step, task, error FROM perdure_v1_parked_steps"


async def is_parked(engine: Engine) -> bool:
    return bool((await engine.sql(PARKED)).rows)


async def is_listed(engine: Engine, count: int = 1, **filters: Any) -> bool:
    return len((await engine.runs(**filters)).runs) == count
