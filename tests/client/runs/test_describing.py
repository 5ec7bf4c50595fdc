"""Descriptions of runs: what each waits for, read from the store."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import perdure
from perdure import (
    AnswerWait,
    ChildWait,
    Engine,
    Handle,
    JoinWait,
    Retry,
    RetryWait,
    Settings,
    Signal,
    SignalWait,
    TaskState,
    TaskWait,
    TimerWait,
    task,
    workflow,
)
from perdure.authoring import registry
from perdure.core.graph import model as m
from perdure.core.graph.model import Edge, Graph
from perdure.core.ids import StepId
from perdure.core.journal import events as e
from perdure.core.runs.waits import format_time
from perdure.testing.probe import Probe
from tests.client.engines import killed, opened, until, until_store
from tests.client.programs.deployable import asking, until_waiting

approval = Signal("approval", str)
payment = Signal("payment", str)

begun: list[str] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    begun.clear()


@task(name="describing.hold")
async def hold(what: str) -> str:
    begun.append(what)
    await asyncio.sleep(600)
    return what


@task(name="describing.hold_there", queue="describing")
async def hold_there(what: str) -> str:
    begun.append(what)
    await asyncio.sleep(600)
    return what


@task(name="describing.fail", retry=Retry(attempts=3, first=600))
async def fail(what: str) -> str:
    raise ValueError(f"{what} is not there")


@task(name="describing.fail_there", queue="describing", retry=Retry(attempts=3, first=600))
async def fail_there(what: str) -> str:
    raise ValueError(f"{what} is not there")


@workflow(name="describing.approving")
async def approving() -> str:
    return await approval.receive()


@workflow(name="describing.in_time")
async def in_time() -> str:
    return await approval.receive(timeout=3600)


@workflow(name="describing.napping")
async def napping() -> None:
    await perdure.sleep(3600)


@workflow(name="describing.holding")
async def holding() -> str:
    return await hold("here")


@workflow(name="describing.holding_there")
async def holding_there() -> str:
    return await hold_there("there")


@workflow(name="describing.failing")
async def failing() -> str:
    return await fail("it")


@workflow(name="describing.failing_there")
async def failing_there() -> str:
    return await fail_there("it")


@workflow(name="describing.parent")
async def parent() -> str:
    return await approving()


async def ask_in_time() -> str:
    return await payment.receive(timeout=3600)


async def ask() -> str:
    return await approval.receive()


@workflow(name="describing.branches")
async def branches() -> Any:
    return await perdure.gather(ask(), ask_in_time())


@workflow(name="describing.many")
async def many() -> Any:
    return await perdure.gather(
        approval.receive(), payment.receive(), perdure.sleep(3600), hold("one")
    )


NO_GRACE = Settings(grace=0)


async def until_waits(run: Handle[Any], is_there: Callable[[Any], bool]) -> Any:
    """Wait until the run has these waits."""
    found: list[Any] = []

    async def ask() -> bool:
        found[:] = (await run.describe()).waits
        return any(map(is_there, found))

    await until_store(ask)
    return found


async def only(run: Handle[Any], kind: type[Any]) -> Any:
    (wait,) = await until_waits(run, lambda each: isinstance(each, kind))
    return wait


async def test_a_signal_is_named_with_since_when(engine: Engine) -> None:
    run = await engine.start(approving())
    wait = await only(run, SignalWait)
    (entry,) = [
        x async for x in run.events(follow=False) if isinstance(x.event, e.ExecutionAwaiting)
    ]
    assert wait == SignalWait(step=StepId("root.0"), name="approval", since_ms=entry.at_ms)
    assert "waits for signal 'approval', since " in str(await run.describe())


async def test_a_signal_with_a_timeout_is_one_wait_with_its_end(engine: Engine) -> None:
    run = await engine.start(in_time())
    wait = await only(run, SignalWait)
    assert wait.name == "approval"
    assert wait.until_ms - wait.since_ms == pytest.approx(3_600_000, abs=60_000)
    assert "times out at 20" in str(wait)


async def test_described_timer_has_its_due_time(engine: Engine) -> None:
    wait = await only(await engine.start(napping()), TimerWait)
    assert wait.until_ms - wait.since_ms == pytest.approx(3_600_000, abs=60_000)


async def test_a_local_task_runs_at_the_host_that_owns_the_run(
    engine_url: str,
) -> None:
    async with opened(engine_url, NO_GRACE) as engine:
        run = await engine.start(holding())
        await until(lambda: begun == ["here"])
        wait = await only(run, TaskWait)
        described = await run.describe()
        assert (wait.task, wait.state, wait.attempt) == ("describing.hold", TaskState.RUNNING, 1)
        assert wait.host == described.owner is not None
        assert wait.queue is None


async def test_a_queued_task_names_its_queue_and_the_host_that_claimed_it(shared_url: str) -> None:
    async with opened(shared_url, NO_GRACE) as engine:
        run = await engine.start(holding_there())
        wait = await only(run, TaskWait)
        assert (wait.state, wait.queue, wait.host) == (TaskState.QUEUED, "describing", None)
        async with opened(shared_url, NO_GRACE, ("describing",)) as worker:
            await until(lambda: begun == ["there"])
            wait = await only(run, TaskWait)
            assert (wait.state, wait.host) == (TaskState.RUNNING, Probe(worker).host_id)
            assert (await run.waits()).tasks == [wait]


@pytest.mark.parametrize(("program", "queue"), [(failing, None), (failing_there, "describing")])
async def test_described_retry_has_its_due_time_and_error(
    engine_url: str, program: Any, queue: str | None
) -> None:
    async with opened(engine_url, None, ("describing",)) as engine:
        run = await engine.start(program())
        found = await until_waits(run, lambda each: isinstance(each, RetryWait))
        (wait,) = found
        assert (wait.attempt, wait.queue, wait.error) == (2, queue, "ValueError: it is not there")
        assert wait.until_ms > wait.since_ms


async def test_a_child_run_is_named_with_its_status(engine: Engine) -> None:
    run = await engine.start(parent())
    found = await until_waits(run, lambda each: getattr(each, "status", "") == "blocked")
    (wait,) = found
    assert isinstance(wait, ChildWait)
    assert (wait.program, wait.status) == ("describing.approving", "blocked")
    child = await only(engine.handle(wait.run_id), SignalWait)
    assert child.name == "approval"


async def test_everything_that_several_branches_wait_for_is_named(engine_url: str) -> None:
    async with opened(engine_url, NO_GRACE) as engine:
        run = await engine.start(many())
        await until(lambda: begun == ["one"])
        waits = await run.waits()
    assert [each.name for each in waits.signals] == ["approval", "payment"]
    assert [each.until_ms for each in waits.signals] == [None, None]
    assert len(waits.timers) == 1
    assert [each.task for each in waits.tasks] == ["describing.hold"]


async def test_the_timeout_of_a_signal_is_known_beside_other_branches(engine: Engine) -> None:
    run = await engine.start(branches())
    await until_waits(run, lambda each: getattr(each, "name", "") == "payment")
    described = await run.describe()
    found = [(each.name, each.until_ms is not None) for each in (await run.waits()).signals]
    assert found == [("approval", False), ("payment", True)]
    assert len(described.waits) == 2


async def test_a_run_whose_host_died_and_whose_code_is_elsewhere_is_described(
    shared_url: str,
) -> None:
    async with killed(shared_url) as dead:
        run = await dead.start(in_time())
        await only(run, SignalWait)
    known = registry._known.pop(("program", in_time.name))
    try:
        async with opened(shared_url) as engine:
            described = await engine.handle(run.run_id).describe()
            (wait,) = described.waits
            assert isinstance(wait, SignalWait)
            assert (described.program, wait.name) == (in_time.name, "approval")
    finally:
        registry._known["program", in_time.name] = known


async def test_a_run_that_is_over_waits_for_nothing(engine: Engine) -> None:
    run = await engine.start(approving())
    await run.signal(approval, "yes")
    await run.result(60)
    described = await run.describe()
    assert (described.status, described.waits) == ("completed", ())
    assert described.closed_at_ms is not None
    assert str(described).endswith(format_time(described.closed_at_ms))
    assert (await run.waits()).signals == []


async def test_an_older_wait_that_names_no_signals_is_replayed_and_described(
    shared_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("perdure.engine.workflow.awaiting._signals", lambda *_: ())
        async with opened(shared_url) as engine:
            run = await engine.start(in_time())
            found = await until_waits(run, lambda each: isinstance(each, TimerWait))
            assert [getattr(each, "name", "no signal") for each in found] == [None, "no signal"]
    async with opened(shared_url) as engine:
        again = engine.handle(run.run_id)
        assert "waits for a signal, since" in str(await again.describe())
        await again.signal(approval, "yes")
        assert await again.result(60) == "yes"


# Graphs


async def graph_started(engine: Engine, model: Graph, **fields: object) -> Handle[Any]:
    await engine.deploy(model)
    await engine.activate(model.name, model.version)
    return await engine.start_graph(model.name, fields)


async def test_what_a_graph_waits_for_is_named(engine: Engine) -> None:
    model = Graph(
        "describing-graph",
        (
            m.TriggerNode(name="start"),
            m.HookNode(name="nap", sleep="3600"),
            m.HookNode(name="plain", topic="plain"),
            m.HookNode(name="timed", topic="timed", sleep="3600"),
            m.HookNode(name="keyed", topic="keyed", key="k"),
            m.HookNode(name="both", topic="both", key="k", sleep="3600"),
            m.WorkerNode(name="total", task="deployable.add", input={"a": "1", "b": "1"}),
            m.OutputNode(name="out", value="total"),
        ),
        (
            *(Edge("start", name) for name in ("nap", "plain", "timed", "keyed", "both")),
            Edge("plain", "total"),
            Edge("keyed", "total"),
            Edge("total", "out"),
        ),
        "1",
        {"k": m.FieldType("str")},
    )
    run = await graph_started(engine, model, k="here")
    await until_waiting(run, 2)
    found = {wait.step.partition(",")[0]: wait for wait in (await run.describe()).waits}
    assert set(found) == {"nap", "plain", "timed", "keyed", "both"}
    assert isinstance(found["nap"], TimerWait)
    for name, has_end in (("plain", False), ("timed", True), ("keyed", False), ("both", True)):
        wait = found[name]
        assert isinstance(wait, SignalWait)
        assert (wait.name, wait.until_ms is not None) == (name, has_end)
        assert wait.key == ("here" if name in ("keyed", "both") else None)
    await engine.send("keyed", "here")
    waits = await until_waits(run, lambda each: isinstance(each, JoinWait))
    (join,) = [wait for wait in waits if isinstance(wait, JoinWait)]
    assert (join.required, join.resolved) == (2, 1)
    await run.cancel()
    with pytest.raises(perdure.RunCancelled):
        await run.result(60)
    assert (await run.describe()).waits == ()


async def test_a_task_that_responded_with_202_waits_for_an_answer(engine: Engine) -> None:
    run = await graph_started(engine, asking("describing-asking"), who="Ada")
    wait = await only(run, AnswerWait)
    assert (wait.step.partition(",")[0], wait.task) == ("ask", "deployable.ask")
    await run.respond("ask", 42)
    assert await run.result(60) == 42


# Entries without following


async def test_events_end_at_once_if_they_are_not_followed(engine: Engine) -> None:
    run = await engine.start(approving())
    await only(run, SignalWait)
    kinds = [type(entry.event) async for entry in run.events(follow=False)]
    assert kinds == [e.ExecutionStarted, e.ExecutionAwaiting]
    assert [entry.seq async for entry in run.events(1, follow=False)] == [1]
    await run.signal(approval, "yes")
    await run.result(60)
    last = [type(entry.event) async for entry in run.events(follow=False)][-1]
    assert last is e.ExecutionCompleted


async def test_events_of_a_graph_end_at_once_if_they_are_not_followed(engine: Engine) -> None:
    run = await graph_started(engine, asking("describing-events"), who="Ada")
    await only(run, AnswerWait)
    opened_kinds = [type(entry.event) async for entry in run.events(follow=False)]
    assert opened_kinds[0] is e.ExecutionStarted
    assert e.InvokeCompleted in opened_kinds
    await run.respond("ask", 42)
    await run.result(60)
    closed_kinds = [type(entry.event) async for entry in run.events(follow=False)]
    assert closed_kinds[: len(opened_kinds)] == opened_kinds
    assert closed_kinds[-1] is e.ExecutionCompleted


@workflow(name="describing.chained")
async def chained(more: bool) -> str:
    if more:
        await perdure.continue_as_new(chained(False))
    return await approval.receive()


async def test_of_a_chain_the_last_run_is_described_and_all_entries_are_read(
    engine: Engine,
) -> None:
    run = await engine.start(chained(True))
    await only(run, SignalWait)
    described = await run.describe()
    assert described.run_id == list(await run.runs())[-1] != run.run_id
    kinds = [type(entry.event) async for entry in run.events(follow=False)]
    assert kinds.count(e.ExecutionStarted) == 2
    assert kinds[-1] is e.ExecutionAwaiting
