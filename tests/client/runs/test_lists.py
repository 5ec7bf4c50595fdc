"""Lists of runs as users read them."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from perdure import (
    Engine,
    GraphProgram,
    InputError,
    RunCancelled,
    RunStatus,
    Signal,
    task,
    workflow,
)
from perdure.core.errors import InvalidId
from perdure.core.graph import model as m
from perdure.core.journal import events as e
from tests.client.engines import (
    assert_sound,
    opened,
    store_of,
    until_recorded,
    until_status,
    until_store,
)
from tests.client.programs.deployable import adding, graph
from tests.store.builders import raw

approval = Signal("approval", bool)


@task(name="lists.fail")
async def fail(order: int) -> None:
    raise ValueError(f"order {order} has no address")


@workflow(name="lists.failing")
async def failing(order: int) -> None:
    await fail(order)


@workflow(name="lists.quick")
async def quick() -> None:
    pass


@workflow(name="lists.waiting")
async def waiting() -> bool:
    return await approval.receive()


hooked = GraphProgram[..., int](adding("lists.hooked", ""))
without_key = GraphProgram[..., Any](
    graph(
        "lists.without_key",
        m.HookNode(name="consent", topic="consent", output={}, sleep="limit"),
        m.OutputNode(name="out", value="1"),
        edges="start consent out",
        version="",
        limit="int",
    )
)


async def programs(engine: Engine, **filters: Any) -> list[str]:
    return [run.program for run in (await engine.runs(**filters)).runs]


async def test_runs_that_failed_for_one_cause_have_one_fingerprint(engine: Engine) -> None:
    runs = [await engine.start(failing(order)) for order in (17, 4711)]
    await (await engine.start(quick())).result(60)
    for run in runs:
        with pytest.raises(ValueError, match="has no address"):
            await run.result(60)
    failed = (await engine.runs(status=RunStatus.FAILED)).runs
    assert {run.run_id for run in failed} == {run.run_id for run in runs}
    (cause,) = {run.error for run in failed}
    assert [run.run_id for run in (await engine.runs(error=cause)).runs] == sorted(
        (run.run_id for run in runs), reverse=True
    )
    assert str(await engine.count(error=cause)) == "2 runs"
    assert {run.error for run in (await engine.runs(status="completed")).runs} == {None}


async def test_runs_are_found_by_the_signal_that_they_wait_for(engine: Engine) -> None:
    for_flow, for_graph = await engine.start(waiting()), await engine.start(hooked(x=1, k="a"))
    await until_recorded(engine, for_flow, e.ExecutionAwaiting)

    async with asyncio.timeout(60):
        while not await programs(engine, waiting_for="go"):  # noqa: ASYNC110 - no one is notified
            await asyncio.sleep(0.005)
    assert await programs(engine, waiting_for="approval") == ["lists.waiting"]
    assert await programs(engine, waiting_for="go") == ["lists.hooked"]
    assert await programs(engine, waiting_for="approval", status="completed") == []
    await for_flow.signal(approval, True)
    await engine.send("go", "a")
    await for_flow.result(60)
    await for_graph.result(60)
    assert await programs(engine, waiting_for="approval") == []


async def test_graphs_are_found_by_the_signal_that_a_hook_without_a_key_waits_for(
    engine_url: str,
) -> None:
    async with opened(engine_url) as engine:
        run = await engine.start(without_key(limit=3600))

        async def is_found() -> bool:
            return await programs(engine, waiting_for="consent") == ["lists.without_key"]

        await until_store(is_found)
        waits = await run.waits()
        assert ([each.name for each in waits.signals], waits.hooks) == (["consent"], [])
        rows = await engine.sql("SELECT name, key FROM perdure_v1_waits WHERE kind = 'signal'")
        assert rows.rows == [("consent", None)]
        await run.signal(Signal("consent", int), 1)
        assert await run.result(60) == 1
        assert await programs(engine, waiting_for="consent") == []


async def test_a_hook_without_a_key_whose_row_is_lost_is_found_again_after_a_restart(
    shared_url: str,
) -> None:
    async with Engine(shared_url) as engine:
        run = await engine.start(without_key(limit=3600))

        async def is_found() -> bool:
            return await programs(engine, waiting_for="consent") == ["lists.without_key"]

        await until_store(is_found)
        await raw(store_of(engine), f"DELETE FROM {{}}hook WHERE run_id = '{run.run_id}'")
        assert not await is_found()
    async with Engine(shared_url) as engine:
        await until_store(is_found)
        await engine.handle(run.run_id).cancel()
        with pytest.raises(RunCancelled):
            await engine.handle(run.run_id).result(60)
        assert await programs(engine, waiting_for="consent") == []
        await assert_sound(engine)


async def test_runs_are_found_by_their_times_and_states(engine_url: str) -> None:
    async with opened(engine_url) as engine:
        before = datetime.now(UTC) - timedelta(seconds=1)
        done = await engine.start(quick(), key="order-1")
        await done.result(60)
        open_run = await engine.start(waiting(), key="order-2")
        await until_status(open_run, RunStatus.BLOCKED)
        later = datetime.now(UTC) + timedelta(seconds=1)
        both = ["lists.quick", "lists.waiting"]  # ids of one millisecond are in any order
        assert sorted(await programs(engine)) == both
        assert sorted(await programs(engine, created=(before, later))) == both
        assert await programs(engine, created=(None, before)) == []
        assert await programs(engine, closed=(before, later)) == ["lists.quick"]
        assert await programs(engine, closed=(later, None)) == []
        assert await programs(engine, status=["blocked", RunStatus.RUNNING]) == ["lists.waiting"]
        assert await programs(engine, status=()) == []
        assert sorted(await programs(engine, key_prefix="order-")) == both
        assert await programs(engine, key_prefix="order-2", program="lists.quick") == []
        await open_run.cancel()
        await until_status(open_run, RunStatus.CANCELLED)
        assert await programs(engine, status="cancelled") == ["lists.waiting"]


async def test_a_paused_run_still_waits_for_its_signal(engine_url: str) -> None:
    async with opened(engine_url) as engine:
        run = await engine.start(waiting())
        await until_status(run, RunStatus.BLOCKED)
        (awaited,) = (await run.waits()).signals
        before = await engine.runs(waiting_for=awaited.name)
        assert (await (await run.pause()).decision(60)).accepted
        after = await engine.runs(waiting_for=awaited.name)
        assert [each.run_id for each in after.runs] == [run.run_id]
        assert [each.run_id for each in before.runs] == [run.run_id]
        await run.cancel()


async def test_a_list_is_read_page_by_page_or_as_a_whole(engine_url: str) -> None:
    async with opened(engine_url) as engine:
        started = await engine.start_many([quick() for _ in range(7)])
        for run in started:
            await run.result(60)
        found, after = [], None
        while True:
            page = await engine.runs(program="lists.quick", after=after, limit=3)
            found += [run.run_id for run in page.runs]
            after = page.cursor
            if after is None:
                break
        assert found == sorted((run.run_id for run in started), reverse=True)
        assert [run.run_id async for run in engine.iterate_runs(program="lists.quick")] == found


async def test_a_summary_is_readable_and_has_a_json_form() -> None:
    async with opened("sqlite:///:memory:") as engine:
        run = await engine.start(quick(), key="order-1", tags={"customer": "acme"}, scope="prod")
        await run.result(60)
        page = await engine.runs()
        (summary,) = page.runs
        assert repr(summary).startswith(f"<{run.run_id} lists.quick 'order-1' completed 20")
        assert repr(page) == "<page of 1 runs, the last page>"
        assert repr(await engine.count()) == "<1 runs>"
        shown = msgspec.to_builtins(summary)
        assert shown | {"created": "", "closed": ""} == {
            "run_id": run.run_id,
            "program": "lists.quick",
            "status": "completed",
            "created": "",
            "closed": "",
            "scope": "prod",
            "key": "order-1",
            "tags": {"customer": "acme"},
            "entries": 2,
        }


async def test_a_damaged_row_is_listed_as_parked_beside_the_others() -> None:
    async with Engine("sqlite:///:memory:") as engine:
        runs = [await engine.start(quick()) for _ in range(2)]
        for run in runs:
            await run.result(60)
        await raw(
            store_of(engine),
            f"UPDATE {{}}run SET status = 'odd', created_at_ms = -5 WHERE id = '{runs[0].run_id}'",
        )
        found = {run.run_id: run for run in (await engine.runs()).runs}
        assert found[runs[0].run_id].status is RunStatus.PARKED
        assert "'odd'" in str(found[runs[0].run_id].parked_reason)
        assert found[runs[1].run_id].status is not RunStatus.PARKED


WRONG: list[dict[str, Any]] = [
    {"status": "finished"},
    {"status": 3},
    {"state": "failed"},
    {"limit": 0},
    {"limit": 1001},
    {"limit": True},
    {"after": "r_1"},
    {"after": "e5-r_" + "0" * 32},
    {"after": "n-r_" + "0" * 32, "status": "failed"},
    {"created": datetime(2026, 1, 1, tzinfo=UTC)},
    {"created": (datetime(2026, 1, 1), None)},  # noqa: DTZ001 - that is what is refused
    {"closed": (None, 5)},
    {"parked": "yes"},
    {"program": ""},
    {"program": "a\0"},
    {"key_prefix": ""},
    {"scope": 4},
]


@pytest.mark.parametrize("wrong", WRONG, ids=str)
async def test_wrong_filters_are_refused(wrong: dict[str, Any]) -> None:
    async with opened("sqlite:///:memory:") as engine:
        with pytest.raises(InputError):
            await engine.runs(**wrong)
        with pytest.raises(InvalidId):
            await engine.runs(parent="r_1")
