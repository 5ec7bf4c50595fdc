"""Scopes are tenants: every way by which data could get from one to another."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import pytest

import perdure
from perdure import ArtifactRef, Engine, Every, GraphProgram, RunStatus, Signal, task, workflow
from perdure.core.graph import model as m
from tests.client.engines import assert_sound, store_of, until_store
from tests.client.programs.deployable import graph

go = Signal("scopes.go", str)
MINE, OTHER = "acme/shop/live", "rival/shop/live"


@task(name="scopes.stored")
async def stored(text: str) -> ArtifactRef:
    return await perdure.put_artifact(text, kind="note")


@workflow(name="scopes.leaf")
async def leaf(text: str) -> str:
    return text


@workflow(name="scopes.family")
async def family(left: int) -> str:
    """Starts a child, and continues as new."""
    await leaf("child")
    if left:
        await perdure.continue_as_new(family(left - 1))
    return await go.receive()


hooked = GraphProgram(
    graph(
        "scopes.hooked",
        m.TriggerNode(name="start", keys={"order": "x"}),
        m.HookNode(name="wait", topic="scopes.topic", key="x"),
        m.OutputNode(name="out", value="wait"),
        edges="start wait out",
        version="",
        x="str",
    )
)


async def children(engine: Engine) -> None:
    """Children, later runs of chains and forks are in the scope of the run that they come from."""
    for scope in (MINE, OTHER):
        run = await engine.start(family(1), scope=scope, key="same key")
        await run.signal(go, scope)
        assert await run.result(60) == scope
        fork = await run.fork("root.0", signals=False)
        await fork.signal(go, "fork")
        assert await fork.result(60) == "fork"
    found = [run async for run in engine.iterate_runs(program="scopes.leaf")]
    assert {run.scope for run in found} == {MINE, OTHER}
    assert len(found) == 2 * len([run for run in found if run.scope == MINE]) >= 4
    found = [run async for run in engine.iterate_runs(program="scopes.family")]
    assert len([run for run in found if run.scope == MINE]) == len(found) / 2 >= 3


async def keys(engine: Engine) -> None:
    """A start key names one run in each scope."""
    mine = await engine.start(leaf("mine"), scope=MINE, key="k")
    other = await engine.start(leaf("other"), scope=OTHER, key="k")
    assert mine.run_id != other.run_id
    assert await engine.find(leaf, "k") is None
    found = await engine.find(leaf, "k", scope=OTHER)
    assert found is not None
    assert found.run_id == other.run_id


async def lists(engine: Engine) -> None:
    """Filters of a scope, with any other filter, find nothing of another."""
    mine = await engine.start(leaf("x"), scope=MINE, key="list", tags={"customer": "ada"})
    other = await engine.start(leaf("x"), scope=OTHER, key="list", tags={"customer": "ada"})
    await mine.result(60)
    await other.result(60)
    for more in (
        {},
        {"tags": {"customer": "ada"}},
        {"program": "scopes.leaf"},
        {"status": "completed"},
        {"key_prefix": "li"},
    ):
        found = [run.run_id async for run in engine.iterate_runs(scope=MINE, **more)]
        assert found == [mine.run_id], more
        assert (await engine.count(scope=MINE, **more)).runs == 1


async def signals_by_key(engine: Engine) -> None:
    """A signal to a topic and key reaches a run of its scope alone."""
    other = await engine.start(hooked(x="7"), scope=OTHER)
    mine = await engine.start(hooked(x="7"), scope=MINE)
    none = await engine.start(hooked(x="7"))
    await engine.send("scopes.topic", "7", "for me", scope=MINE)
    assert await mine.result(60) == "for me"
    assert RunStatus.COMPLETED not in [await run.status() for run in (other, none)]
    await engine.send("scopes.topic", "7", "for all")
    assert await none.result(60) == "for all"
    assert await other.status() is not RunStatus.COMPLETED
    await engine.send("scopes.topic", "7", "for them", scope=OTHER)
    assert await other.result(60) == "for them"


async def schedules(engine: Engine) -> None:
    """Schedules of one name in two scopes are two, and each starts runs of its own scope."""
    for scope in (MINE, OTHER):
        await engine.schedule("nightly", leaf(scope), Every(timedelta(days=1)), scope=scope)
    assert [info.scope for info in await engine.schedules(scope=MINE)] == [MINE]
    await engine.schedule_handle("nightly", scope=OTHER).trigger()

    async def has_ticked() -> bool:
        return bool((await engine.count(scope=OTHER)).runs)

    await until_store(has_ticked)
    assert not (await engine.count(scope=MINE)).runs
    await engine.schedule_handle("nightly", scope=MINE).delete()
    assert [info.scope for info in await engine.schedules()] == [OTHER]


async def erasures(engine: Engine) -> None:
    """Policies and erasures of a scope leave the others alone."""
    mine = await engine.start(leaf("x"), scope=MINE, tags={"customer": "ada"})
    other = await engine.start(leaf("x"), scope=OTHER, tags={"customer": "ada"})
    await mine.result(60)
    await other.result(60)
    (done,) = await engine.retention.run()
    assert (done.due, done.done) == (1, 1)
    assert await store_of(engine).run(mine.run_id) is None
    assert await other.result(60) == "x"


WAYS = [children, keys, lists, signals_by_key, schedules, erasures]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_nothing_gets_from_one_scope_to_another(
    way: Callable[[Engine], Awaitable[None]], shared_url: str, tmp_path: Path
) -> None:
    policies = [perdure.Retention(scope=MINE, keep=0, then="purge")]
    async with Engine(
        shared_url, artifacts=str(tmp_path / "artifacts"), retention=policies
    ) as engine:
        await way(engine)
        await assert_sound(engine)
