"""Explanations: why a run does not move, each cause made to happen on a real store."""

import asyncio
from typing import Any

import pytest

from perdure import (
    CauseKind,
    Engine,
    Explanation,
    Handle,
    Settings,
    Signal,
    task,
    workflow,
)
from perdure.authoring import registry
from perdure.core.graph import model as m
from perdure.core.graph.model import Edge, Graph
from tests.client.engines import assert_cancelled, killed, opened, until, until_store
from tests.client.programs.deployable import graph
from tests.client.runs import test_describing as programs

begun: list[str] = []
NO_GRACE = Settings(grace=0)
unrelated = Signal("unrelated", int)


@task(name="explaining.hold", queue="explaining")
async def hold(what: str) -> str:
    begun.append(what)
    await asyncio.sleep(600)
    return what


@workflow(name="explaining.holding")
async def holding(what: str) -> str:
    return await hold(what)


@workflow(name="explaining.grandparent")
async def grandparent() -> str:
    return await programs.parent()


@pytest.fixture(autouse=True)
def _fresh() -> None:
    begun.clear()
    programs.begun.clear()


async def explained(run: Handle[Any], *kinds: CauseKind) -> Explanation:
    """The explanation of a run, once these are its causes in this order."""
    found: list[Explanation] = []

    async def ask() -> bool:
        found[:] = [await run.explain()]
        return kinds_of(found[0]) == list(kinds)

    try:
        await until_store(ask)
    except TimeoutError:
        raise AssertionError(f"{kinds_of(found[0])}: {found[0]}") from None
    return found[0]


def kinds_of(found: Explanation) -> list[CauseKind]:
    return [cause.kind for cause in found.causes]


@pytest.mark.parametrize(
    ("program", "kind", "said", "then"),
    [
        (programs.approving, CauseKind.SIGNAL, "waits for signal 'approval' at root.0", ""),
        (programs.in_time, CauseKind.SIGNAL, "waits for signal 'approval'", "the wait times out"),
        (programs.napping, CauseKind.TIMER, "sleeps at root.0", "it wakes"),
        (
            programs.failing,
            CauseKind.RETRY,
            "again after ValueError: it is not",
            "attempt 2 begins",
        ),
        (programs.holding, CauseKind.TASK_RUNNING, "is running at host h_", "when the task ends"),
    ],
    ids=["signal", "signal in time", "timer", "retry", "task"],
)
async def test_wait_is_explained_with_what_follows(
    engine_url: str, program: Any, kind: CauseKind, said: str, then: str
) -> None:
    async with opened(engine_url, NO_GRACE) as engine:
        run = await engine.start(program())
        found = await explained(run, kind)
        assert said in found.summary
        assert then in found.next_text
        assert (found.next_at_ms is not None) == (kind is not CauseKind.TASK_RUNNING and bool(then))
        if kind is CauseKind.SIGNAL:
            assert found.command == f"perdure runs signal {run.run_id} approval VALUE"
        if not then:
            assert "Nothing happens by itself." in found.summary


async def test_child_run_is_explained_down_to_the_last_one(engine: Engine) -> None:
    run = await engine.start(grandparent())
    found = await explained(run, CauseKind.CHILD, CauseKind.CHILD, CauseKind.SIGNAL)
    first, second, signal = found.causes
    assert len({first.run_id, second.run_id, signal.run_id}) == 3
    assert f"Run {signal.run_id} waits for signal 'approval'" in found.summary
    assert found.command == f"perdure runs signal {signal.run_id} approval VALUE"


async def test_queue_that_no_host_serves_is_named_with_the_worker_that_would(
    shared_url: str,
) -> None:
    async with opened(shared_url, NO_GRACE) as engine:
        run = await engine.start(holding("one"))
        found = await explained(run, CauseKind.QUEUE_UNSERVED)
        assert "queue 'explaining', which no live host serves" in found.summary
        assert found.command == "perdure worker MODULE:ENGINE --queues explaining"


async def test_queue_whose_worker_is_busy_counts_its_tasks(shared_url: str) -> None:
    busy = Settings(grace=0, concurrency=1)
    async with (
        opened(shared_url, NO_GRACE) as engine,
        opened(shared_url, busy, ("explaining",)),
    ):
        await engine.start(holding("one"))
        await until(lambda: begun == ["one"])
        run = await engine.start(holding("two"))
        found = await explained(run, CauseKind.QUEUE_BUSY)
        assert "served by 1 hosts: 1 tasks are due, 1 are claimed" in found.summary
        assert found.next_text == "a host claims it when it has a free slot"


async def test_dead_worker_of_a_claimed_task_is_named(shared_url: str) -> None:
    slow = Settings(grace=0, heartbeat=20, stale_after=90)
    async with opened(shared_url, slow) as engine:
        async with killed(shared_url, slow, ("explaining",)):
            run = await engine.start(holding("one"))
            await until(lambda: begun == ["one"])
        found = await explained(run, CauseKind.WORKER_DEAD)
        assert "another worker of the queue claims it" in found.next_text


async def test_task_without_a_free_slot_has_not_started(engine_url: str) -> None:
    async with opened(engine_url, Settings(grace=0, concurrency=1)) as engine:
        await engine.start(programs.holding())
        await until(lambda: programs.begun == ["here"])
        run = await engine.start(programs.holding())
        await explained(run, CauseKind.TASK_STARTING)


async def test_dead_host_that_no_host_has_noticed_is_named(shared_url: str) -> None:
    async with killed(shared_url) as engine:
        run_id = (await engine.start(programs.approving())).run_id
    async with Engine(shared_url, hosts=False) as front_end:
        found = await explained(front_end.handle(run_id), CauseKind.HOST_DEAD, CauseKind.SIGNAL)
        assert "which is dead" in found.summary
        assert found.command == "perdure worker MODULE:ENGINE"


async def test_run_without_owner_and_without_hosts_needs_a_worker(shared_url: str) -> None:
    async with Engine(shared_url, hosts=False) as front_end:
        run = await front_end.start(programs.approving())
        found = await explained(run, CauseKind.NO_HOST)
        assert "no host is alive" in found.summary
        assert found.command == "perdure worker MODULE:ENGINE"


async def test_run_of_a_program_that_no_host_has_is_named(
    shared_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Engine(shared_url, hosts=False) as front_end:
        run_id = (await front_end.start(programs.approving())).run_id
    monkeypatch.delitem(registry._known, ("program", programs.approving.name))
    async with opened(shared_url) as engine:
        found = await explained(engine.handle(run_id), CauseKind.NO_HOST)
        assert "none of 1 live hosts has its program" in found.summary


async def test_diverged_run_names_the_replay(
    shared_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(shared_url) as engine:
        run_id = (await engine.start(programs.approving())).run_id
    monkeypatch.setitem(registry._known, ("program", programs.approving.name), {})

    @workflow(name=programs.approving.name)
    async def approving() -> str:
        return await hold("other")

    async with opened(shared_url) as engine:
        found = await explained(engine.handle(run_id), CauseKind.DIVERGED)
        assert found.command == f"perdure replay {run_id} MODULE:ENGINE"
        assert found.next_text == ""


async def test_signal_that_the_program_does_not_wait_for_is_named(engine: Engine) -> None:
    run = await engine.start(programs.approving())
    await run.signal(unrelated, 1)
    found = await explained(run, CauseKind.SIGNAL, CauseKind.EARLY_SIGNAL)
    assert "it has received signal 'unrelated', and does not wait for it" in found.summary


async def test_run_that_is_over_says_how(engine: Engine) -> None:
    run = await engine.start(programs.approving())
    await run.signal(programs.approval, "yes")
    await run.result(60)
    found = await explained(run, CauseKind.FINISHED)
    assert "is over: it completed after" in found.summary
    assert (found.command, found.next_text) == ("", "")
    run = await engine.start(programs.approving())
    await run.cancel("too late")
    await assert_cancelled(run)
    assert "it was cancelled" in (await explained(run, CauseKind.FINISHED)).summary


async def test_join_names_how_many_predecessors_are_missing(engine: Engine) -> None:
    model = Graph(
        "explaining-join",
        (
            m.TriggerNode(name="start"),
            m.HookNode(name="left", topic="left"),
            m.HookNode(name="right", topic="right", key="k"),
            m.WorkerNode(name="total", task="deployable.add", input={"a": "1", "b": "1"}),
            m.OutputNode(name="out", value="total"),
        ),
        (
            *(Edge("start", name) for name in ("left", "right")),
            *(Edge(name, "total") for name in ("left", "right")),
            Edge("total", "out"),
        ),
        "1",
        {"k": m.FieldType("str")},
    )
    await engine.deploy(model)
    await engine.activate(model.name, "1")
    run = await engine.start_graph(model.name, {"k": "here"})
    found = await explained(run, CauseKind.SIGNAL, CauseKind.SIGNAL)
    assert {cause.command for cause in found.causes} == {
        f"perdure runs signal {run.run_id} left VALUE",
        "perdure send right here VALUE",
    }
    await engine.send("right", "here")
    found = await explained(run, CauseKind.SIGNAL, CauseKind.JOIN)
    assert "1 of 2 predecessors are not resolved" in found.summary


async def test_answer_of_a_task_that_responded_with_202_is_named(engine: Engine) -> None:
    model = graph(
        "explaining-answer",
        m.WorkerNode(name="ask", task="deployable.ask", input={"who": "'Ada'"}, pending=True),
        m.OutputNode(name="out", value="ask"),
        edges="start ask out",
    )
    await engine.deploy(model)
    await engine.activate(model.name, "1")
    run = await engine.start_graph(model.name)
    found = await explained(run, CauseKind.ANSWER)
    assert found.command.startswith(f"perdure runs respond {run.run_id} ask")


async def test_program_that_locks_the_sqlite_file_is_named(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path}/orders.db"
    async with opened(url) as engine:
        run = await engine.start(programs.approving())
        await explained(run, CauseKind.SIGNAL)
        async with engine.transaction() as transaction:
            await transaction.execute("CREATE TABLE mine (x INTEGER)")
            async with Engine(url, hosts=False) as other:
                found = await asyncio.create_task(_explain_elsewhere(other, run.run_id))
    assert kinds_of(found)[0] is CauseKind.STORE_LOCKED
    assert "another program has held the write lock" in found.summary


async def _explain_elsewhere(engine: Engine, run_id: str) -> Explanation:
    return await engine.handle(run_id).explain()
