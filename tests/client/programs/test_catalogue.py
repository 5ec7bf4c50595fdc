"""The catalogue of deployed graphs: hosts run graphs that no process has registered, also after crashes."""

import logging
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from perdure import (
    Engine,
    GraphProgram,
    RunDiverged,
    RunStatus,
    Settings,
    UnreadableProgram,
    task,
)
from perdure.core.graph import model as m
from perdure.core.graph.model import Graph
from perdure.testing import assert_sound
from perdure.testing.probe import Probe
from tests.client.engines import killed, opened, store_of, until_status, until_store
from tests.client.programs.deployable import adding, graph, quick, until_waiting
from tests.store.builders import raw

MODES = pytest.mark.parametrize(
    "settings", [None, Settings(warm_memory=0, stepwise=True)], ids=["fused", "stepwise"]
)


async def deploy(engine: Engine, *models: Graph) -> None:
    for model in models:
        await engine.deploy(model)
        await engine.activate(model.name, model.version)


@MODES
async def test_graph_run_resumes_after_a_kill_in_a_process_without_its_code(
    shared_url: str, settings: Settings | None
) -> None:
    async with killed(shared_url, settings) as engine:
        await deploy(engine, adding("order", "1", 1))
        first = await engine.start_graph("order", {"x": 1, "k": "a"})
        await until_waiting(first)
        await deploy(engine, adding("order", "2", 100))
        second = await engine.start_graph("order", {"x": 1, "k": "b"})
        await until_waiting(second)
        await engine.send("go", "b")
    async with opened(shared_url, settings) as engine:
        assert await engine.handle(second.run_id).result(60) == 101
        await engine.send("go", "a")
        assert await engine.handle(first.run_id).result(60) == 2


async def test_a_host_takes_up_what_another_deployed_and_left_behind(shared_url: str) -> None:
    async with opened(shared_url) as here:
        async with killed(shared_url) as there:
            await deploy(there, adding("order"))
            run = await there.start_graph("order", {"x": 1, "k": "a"})
            await until_waiting(run)
        left = here.handle(run.run_id)
        await here.send("go", "a")
        assert await left.result(60) == 2


async def test_what_another_activates_is_started_at_once(shared_url: str) -> None:
    async with opened(shared_url) as here, opened(shared_url) as there:
        await deploy(there, quick("order", "1", 1))
        assert await (await here.start_graph("order", {"x": 1})).result(60) == 2
        await deploy(there, quick("order", "2", 100))
        assert await (await here.start_graph("order", {"x": 1})).result(60) == 101


async def test_a_pair_that_a_dead_host_left_meets_elsewhere(
    shared_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signal is durable, and its host dies before it matches hooks."""
    async with opened(shared_url) as here:
        await deploy(here, adding("order"))
        run = await here.start_graph("order", {"x": 1, "k": "a"})
        await until_waiting(run)
        async with killed(shared_url) as there:
            monkeypatch.setattr(Probe(there).host, "hooks_changed", lambda: None)
            await there.send("go", "a")
        assert await run.result(60) == 2


async def rewrite(engine: Engine, digest: str, content: str) -> None:
    """As a newer Perdure would have deployed it."""
    text = content.replace("'", "''").replace("{", "{{").replace("}", "}}")
    update = f"UPDATE {{}}program SET content = '{text}' WHERE digest = '{digest}'"
    await raw(store_of(engine), update)


def with_field(content: str) -> str:
    return msgspec.json.encode({**msgspec.json.decode(content), "colour": "red"}).decode()


def with_kind(content: str) -> str:
    return content.replace('"kind":"worker"', '"kind":"dreamer"')


def cut_short(content: str) -> str:
    return content[:20]


@pytest.mark.parametrize("spoil", [with_field, with_kind, cut_short])
async def test_what_can_not_be_read_parks_its_runs_and_nothing_else(
    shared_url: str, spoil: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(shared_url) as engine:
        await deploy(engine, adding("order", "1"), quick("other"))
        run = await engine.start_graph("order", {"x": 1, "k": "a"})
        await until_waiting(run)
        await deploy(engine, adding("order", "2"))
        content = (await store_of(engine).program("order", "1")).content
        digest = (await store_of(engine).program("order", "1")).digest
        await rewrite(engine, digest, spoil(content))
    with caplog.at_level(logging.ERROR, "perdure.host"):
        async with opened(shared_url) as engine:
            stuck = engine.handle(run.run_id)
            await until_status(stuck, RunStatus.PARKED)
            with pytest.raises(RunDiverged, match="unreadable-program"):
                await stuck.result(60)
            await engine.activate("order", "1")
            with pytest.raises(UnreadableProgram, match="version '1' of graph 'order'"):
                await engine.start_graph("order", {"x": 1, "k": "a"})
            assert await (await engine.start_graph("other", {"x": 1})).result(60) == 2
            await rewrite(engine, digest, content)
    assert caplog.text.count("version '1' of graph 'order' can't be read") == 1
    async with opened(shared_url) as engine:
        await engine.send("go", "a")
        assert await engine.handle(run.run_id).result(60) == 2


async def test_a_run_waits_for_a_host_that_has_its_tasks(shared_url: str) -> None:
    name = f"catalogue.{uuid4().hex}"
    model = graph(
        "order",
        m.HookNode(name="go", topic="go", key="k", output={}),
        m.WorkerNode(name="late", task=name, input={"x": "x"}),
        m.OutputNode(name="out", value="late"),
        edges="start go late out",
        x="int",
        k="str",
    )
    async with opened(shared_url) as engine:
        await deploy(engine, model)
        run = await engine.start_graph("order", {"x": 1, "k": "a"})
        await until_waiting(run)
        await engine.send("go", "a")
        await until_status(run, RunStatus.PARKED)
        with pytest.raises(TimeoutError, match=f"it is parked: unknown-name: .*{name}"):
            await run.result(0.2)
        assert "order" not in Probe(engine).host.dispatcher.programs.names()
        stored = await store_of(engine).run(run.run_id)
        assert stored is not None
        assert stored.owner is None

        @task(name=name)
        async def late(x: int) -> int:
            return -x

        async with opened(shared_url):
            assert await run.result(60) == -1


@MODES
async def test_a_run_whose_first_task_is_missing_is_started_and_waits_for_a_host_that_has_it(
    shared_url: str, settings: Settings | None
) -> None:
    name = f"catalogue.{uuid4().hex}"
    model = graph(
        "order",
        m.WorkerNode(name="late", task=name, input={"x": "x"}),
        m.OutputNode(name="out", value="late"),
        edges="start late out",
        x="int",
    )
    async with opened(shared_url, settings) as engine:
        await deploy(engine, model)
        run = await engine.start_graph("order", {"x": 1}, key="one")
        async with engine.transaction():
            joined = await engine.start_graph("order", {"x": 2})

        async def are_unowned() -> bool:
            runs = [await store_of(engine).run(each.run_id) for each in (run, joined)]
            return all(each is not None and each.parked and each.owner is None for each in runs)

        await until_store(are_unowned)
        again = await engine.start_graph("order", {"x": 1}, key="one")
        assert again.run_id == run.run_id

        @task(name=name)
        async def late(x: int) -> int:
            return -x

        async with opened(shared_url, settings):
            assert await run.result(60) == -1
            assert await joined.result(60) == -2
        await assert_sound(store_of(engine))


async def test_a_computed_name_of_an_unknown_task_parks_the_run(shared_url: str) -> None:
    name = f"catalogue.{uuid4().hex}"
    model = graph(
        "order",
        m.WorkerNode(name="late", task_from="which", input={"x": "1"}),
        m.OutputNode(name="out", value="late"),
        edges="start late out",
        which="str",
    )
    async with opened(shared_url) as engine:
        await deploy(engine, model)
        run = await engine.start_graph("order", {"which": name})
        await until_status(run, RunStatus.PARKED)

        @task(name=name)
        async def late(x: int) -> int:
            return -x

    async with opened(shared_url) as engine:
        assert await engine.handle(run.run_id).result(60) == -1
        await assert_sound(store_of(engine))


async def test_a_child_whose_first_task_is_missing_parks_alone(engine: Engine) -> None:
    name = f"catalogue.{uuid4().hex}"
    needy = graph("needy", m.WorkerNode(name="late", task=name), edges="start late")
    order = graph(
        "order",
        m.AwaitNode(name="child", program="needy"),
        m.HookNode(name="go", topic="go", key="k"),
        m.OutputNode(name="out", value="go"),
        edges="start child",
        k="str",
    )
    both = msgspec.structs.replace(
        order, edges=(*order.edges, m.Edge("start", "go"), m.Edge("go", "out"))
    )
    await deploy(engine, needy, both)
    run = await engine.start_graph("order", {"k": "a"})
    await until_waiting(run)
    ids = [books.run_id async for books in store_of(engine).books()]
    (child,) = set(ids) - {run.run_id}
    await until_status(engine.handle(child), RunStatus.PARKED)
    assert await run.status() is RunStatus.RUNNING
    await run.cancel()
    await until_status(run, RunStatus.CANCELLED)
    await assert_sound(store_of(engine))


async def test_run_resumes_with_the_graph_that_has_its_digest(shared_url: str) -> None:
    name = f"order-{uuid4().hex}"
    async with killed(shared_url) as engine:
        await deploy(engine, adding(name, "1", 1))
        run = await engine.start_graph(name, {"x": 1, "k": "a"})
        await until_waiting(run)
    GraphProgram(quick(name, "1", 100))  # registered: another graph of that name and version
    async with opened(shared_url) as engine:
        await engine.send("go", "a")
        assert await engine.handle(run.run_id).result(60) == 2


async def test_preflight_finds_deployed_graphs(shared_url: str) -> None:
    async with opened(shared_url) as engine:
        await deploy(engine, adding("order"))
        run = await engine.start_graph("order", {"x": 1, "k": "a"})
        await until_waiting(run)
        assert (await engine.preflight()).is_clean
    checked = await Engine(shared_url).preflight()
    assert checked.is_clean, str(checked)
    assert checked.runs == 1


async def test_run_of_an_unknown_graph_resumes_when_the_graph_is_deployed(
    shared_url: str,
) -> None:
    """A process that registered the graph started a run and ended; then the graph is deployed."""
    model = adding(f"order-{uuid4().hex}")
    program = GraphProgram[..., int](model, is_registered=False)
    async with killed(shared_url) as engine:
        Probe(engine).host.dispatcher.programs.add(program)
        run = await engine.start(program(x=1, k="a"))
        await until_waiting(run)
    async with opened(shared_url) as engine:
        left = engine.handle(run.run_id)
        await until_status(left, RunStatus.PARKED)
        await engine.deploy(model)
        await engine.send("go", "a")

        async def continues() -> bool:
            return await left.status() is RunStatus.COMPLETED

        await until_store(continues)
        assert await left.result(60) == 2
