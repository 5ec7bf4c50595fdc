"""Graphs and workflows as children of each other: results, failures, cancellation, crashes."""

import asyncio
from pathlib import Path
from uuid import uuid4

import pytest

import perdure
from perdure import (
    Engine,
    GraphBuilder,
    GraphProgram,
    Handle,
    RunCancelled,
    RunStatus,
    Settings,
    Signal,
    SyncEngine,
    task,
    workflow,
)
from perdure.core.graph import model as m
from perdure.core.graph.model import Edge, Graph, RetryRule
from perdure.core.ids import RunId, StepId
from perdure.core.journal import events as e
from perdure.core.replay.identity import child_run_id
from perdure.testing import assert_sound
from tests.client.engines import (
    assert_cancelled,
    killed,
    opened,
    store_of,
    until_status,
    until_store,
)
from tests.client.programs.deployable import adding, graph, quick

go = Signal("go", int)

summing = GraphProgram[..., int](quick("children.summing", ""))
waiting = GraphProgram[..., int](adding("children.waiting", ""))
failing = GraphProgram[..., None](
    graph(
        "children.failing_graph",
        m.WorkerNode(name="fails", task="deployable.fail", input={"reason": "why"}),
        edges="start fails",
        version="",
        why="str",
    )
)


@workflow(name="children.over_graph")
async def over_graph(x: int) -> int:
    return 10 * await summing(x=x)


@workflow(name="children.over_waiting")
async def over_waiting(key: str) -> int:
    return 10 * await waiting(x=1, k=key)


@workflow(name="children.over_failing")
async def over_failing() -> str:
    try:
        await failing(why="it rains")
    except ValueError as error:
        return f"caught: {error}"
    return "fine"


@workflow(name="children.listening_in_graph")
async def listening() -> int:
    return 2 * await go.receive()


@workflow(name="children.failing_in_graph")
async def failing_workflow() -> None:
    raise ValueError("it snows")


def over(program: str, *more: m.AnyNode, edges: tuple[Edge, ...] = ()) -> GraphProgram[..., object]:
    """A graph that awaits a workflow and returns its result."""
    model = Graph(
        f"children.{uuid4().hex}",
        (
            m.TriggerNode(name="start"),
            m.AwaitNode(name="child", program=program),
            m.OutputNode(name="out", value="child"),
            *more,
        ),
        (Edge("start", "child"), Edge("child", "out"), *edges),
        "",
        {},
    )
    return GraphProgram(model)


async def child_of(engine: Engine, run_id: RunId, step: str) -> perdure.Handle[object]:
    """Wait for the child run of that step."""
    child = child_run_id(run_id, StepId(step))

    async def is_there() -> bool:
        return await store_of(engine).run(child) is not None

    await until_store(is_there)
    return engine.handle(child)


async def test_calls_of_graphs_are_started_like_those_of_workflows(engine: Engine) -> None:
    run = await engine.start(summing(x=1), key="one")
    assert (await engine.start(summing(x=1), key="one")).run_id == run.run_id
    many = await engine.start_many([summing(x=2), summing(x=3)])
    assert [await each.result(60) for each in (run, *many)] == [2, 3, 4]


async def test_calls_with_wrong_input_write_nothing(engine: Engine) -> None:
    with pytest.raises(TypeError, match="missing"):
        await engine.start(summing())
    with pytest.raises(perdure.InputError, match="has to be of type int"):
        await engine.start(summing(x="1"))
    assert [books async for books in store_of(engine).books()] == []


async def test_graph_without_declared_input_takes_any_fields(engine: Engine) -> None:
    name = f"children.{uuid4().hex}"
    nodes = (m.TriggerNode(name="start"), m.OutputNode(name="out", value="input"))
    anything = GraphProgram[..., object](Graph(name, nodes, (Edge("start", "out"),)))
    run = await engine.start(anything(x=1, y=[2]), key="k")
    assert await run.result(60) == {"x": 1, "y": [2]}
    with pytest.raises(perdure.KeyReused):
        await engine.start(anything(x=2), key="k")


def test_scripts_run_graphs(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/script.db"
    assert perdure.run(summing(x=1), store=url) == 2
    with SyncEngine(url) as engine:
        deployed = engine.deploy(adding("scripted"))
        assert engine.activate("scripted", "1").digest == deployed.digest
        run = engine.start_graph("scripted", {"x": 1, "k": "a"})
        engine.send("go", "a")
        assert run.result(60) == 2
        assert run.waits().hooks == []
        assert [each.version for each in engine.graphs()] == ["1"]
        assert engine.statistics("scripted", "none") == {}
        with pytest.raises(perdure.RunClosed):
            run.respond("total", 1)


async def test_a_workflow_awaits_a_graph(engine: Engine) -> None:
    assert await (await engine.start(over_graph(1))).result(60) == 20


async def test_a_graph_awaits_a_workflow(engine: Engine) -> None:
    run = await engine.start(over("children.listening_in_graph")())
    child = await child_of(engine, run.run_id, "child,0,0")
    await child.signal(go, 21)
    assert await run.result(60) == 42


async def test_the_failure_of_a_graph_reaches_the_workflow(engine: Engine) -> None:
    assert await (await engine.start(over_failing())).result(60) == "caught: it rains"


async def test_the_failure_of_a_workflow_reaches_the_graph(engine: Engine) -> None:
    caught = over(
        "children.failing_in_graph",
        m.OutputNode(name="sorry", value="oops['message']"),
        edges=(Edge("child", "sorry", on="error", errors=("ValueError",), bind="oops"),),
    )
    assert await (await engine.start(caught())).result(60) == "it snows"
    run = await engine.start(over("children.failing_in_graph")())
    with pytest.raises(ValueError, match="it snows"):
        await run.result(60)


async def test_cancelling_a_workflow_cancels_its_graph(engine: Engine) -> None:
    run = await engine.start(over_waiting("nobody"))
    child = await child_of(engine, run.run_id, "root.0")
    await run.cancel()
    await assert_cancelled(run)
    await until_status(child, RunStatus.CANCELLED)


async def test_cancelling_a_graph_cancels_its_workflow(engine: Engine) -> None:
    run = await engine.start(over("children.listening_in_graph")())
    child = await child_of(engine, run.run_id, "child,0,0")
    await run.cancel()
    await assert_cancelled(run)
    await until_status(child, RunStatus.CANCELLED)


async def test_a_cancelled_child_reaches_its_parent(engine: Engine) -> None:
    over_one = await engine.start(over_waiting("nobody"))
    over_other = await engine.start(over("children.listening_in_graph")())
    await (await child_of(engine, over_one.run_id, "root.0")).cancel("enough")
    await (await child_of(engine, over_other.run_id, "child,0,0")).cancel("enough")
    for run in (over_one, over_other):
        with pytest.raises(RunCancelled, match="was cancelled: enough"):
            await run.result(60)
    assert [await run.status() for run in (over_one, over_other)] == ["failed", "failed"]


@pytest.mark.parametrize(
    "settings", [None, Settings(warm_memory=0, stepwise=True)], ids=["fused", "stepwise"]
)
async def test_workflow_and_graph_children_resume_after_a_kill(
    shared_url: str, settings: Settings | None
) -> None:
    graph_over = over("children.listening_in_graph")
    async with killed(shared_url, settings) as engine:
        over_one = await engine.start(over_waiting("a"))
        over_other = await engine.start(graph_over())
        await child_of(engine, over_one.run_id, "root.0")
        await (await child_of(engine, over_other.run_id, "child,0,0")).signal(go, 21)
    async with opened(shared_url, settings) as engine:
        await engine.send("go", "a")
        results = (engine.handle(run.run_id).result(60) for run in (over_one, over_other))
        assert await asyncio.gather(*results) == [20, 42]


async def test_a_graph_awaits_the_active_version_of_another(engine: Engine) -> None:
    for version, by in (("1", 1), ("2", 100)):
        await engine.deploy(quick("inner", version, by))
        await engine.activate("inner", version)
    outer = graph(
        "outer",
        m.AwaitNode(name="child", program="inner", input={"x": "x"}),
        m.OutputNode(name="out", value="child"),
        edges="start child out",
        x="int",
    )
    await engine.deploy(outer)
    await engine.activate("outer", "1")
    assert await (await engine.start_graph("outer", {"x": 1})).result(60) == 101


@task
async def refuse_child() -> None:
    raise LookupError("not today")


def retrying(name: str, attempts: int) -> GraphProgram[..., object]:
    """A graph that awaits a child which fails, or waits for a signal, and retries it."""
    child = GraphBuilder(f"{name}_child", input={"fails": bool})
    child.branch("way")
    child.worker("refuse", refuse_child)
    child.hook("stay", "never")
    child.edge("way", "refuse", when="fails")
    child.edge("way", "stay")
    GraphProgram(child.build())
    b = GraphBuilder(name, input={"fails": bool})
    rule = RetryRule(attempts=attempts, first=0.01)
    b.wait_for("child", f"{name}_child", input={"fails": "fails"}, retry=rule)
    b.output("out", "child")
    b.chain("child", "out")
    return GraphProgram(b.build())


async def attempts_of(run: Handle[object]) -> list[int]:
    events = [entry.event async for entry in run.events(follow=False)]
    return [event.attempt for event in events if isinstance(event, e.InvokeStarted)]


async def test_an_await_that_fails_is_retried_with_new_runs(engine: Engine) -> None:
    run = await engine.start(retrying("retrying_children", 3)(fails=True))
    with pytest.raises(LookupError, match="not today"):
        await run.result(60)
    assert await attempts_of(run) == [1, 2, 3]
    ids = {child_run_id(run.run_id, StepId("child,0,0"), attempt) for attempt in (1, 2, 3)}
    assert len(ids) == 3
    for each in ids:
        assert await engine.handle(each).status() is RunStatus.FAILED
    await assert_sound(store_of(engine))


async def test_a_child_that_was_cancelled_is_not_retried(engine: Engine) -> None:
    run = await engine.start(retrying("retrying_cancelled", 3)(fails=False))
    await engine.handle(child_run_id(run.run_id, StepId("child,0,0"))).cancel()
    await assert_cancelled(run)
    assert await attempts_of(run) == [1]
    await assert_sound(store_of(engine))
