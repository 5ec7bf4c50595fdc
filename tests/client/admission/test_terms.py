"""Delay, approval and debouncing of starts, seen by callers of an engine."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from perdure import (
    Actor,
    ContractEvent,
    Denied,
    Engine,
    InputError,
    Roles,
    RunCancelled,
    RunStatus,
    Subscriber,
    load_graph,
    task,
    workflow,
)
from perdure.core.journal import events as e
from perdure.testing import simulated
from tests.client.engines import assert_sound, opened, until

executed: list[int] = []


@pytest.fixture(autouse=True)
def nothing_executed() -> None:
    executed.clear()


@task(name="termed_work")
async def work(n: int) -> int:
    executed.append(n)
    return n


@workflow(name="termed")
async def termed(n: int) -> int:
    return await work(n)


async def kinds(handle: Any) -> list[type[e.Event]]:
    return [type(entry.event) async for entry in handle.events()]


async def test_a_delayed_run_is_pending_until_its_time() -> None:
    engine = Engine("sqlite:///:memory:")
    async with simulated(engine) as clock:
        run = await engine.start(termed(1), delay=timedelta(hours=1), tags={"customer": "acme"})
        await clock.advance(3590)
        assert (await run.status(), executed) == (RunStatus.PENDING, [])
        assert "is delayed" in (await run.explain()).summary
        await clock.advance(20)
        assert await run.result() == 1
        page = await engine.runs(tags={"customer": "acme"})
        assert [each.run_id for each in page.runs] == [run.run_id]
        await assert_sound(engine)


async def test_an_approved_run_has_the_approval_before_its_start(engine: Engine) -> None:
    run = await engine.start(termed(1), key="k", approval=True)
    assert "waits for approval" in (await run.explain()).summary
    receipt = await run.approve("checked", by=Actor("ann", "operator"))
    assert (await receipt.decision(20)).accepted
    assert await run.result() == 1
    approved, *_ = [entry.event async for entry in run.events()]
    assert isinstance(approved, e.RunApproved)
    assert approved.by == "ann"
    assert (await kinds(run))[1] is e.ExecutionStarted
    assert (await engine.start(termed(1), key="k")).run_id == run.run_id
    again = await run.approve("twice", by=Actor("ann", "operator"))
    assert not (await again.decision(20)).accepted
    assert await (await run.fork()).result() == 1


async def test_a_denied_approval_leaves_the_run_pending(engine_url: str) -> None:
    async with Engine(engine_url, authorizer=Roles()) as engine:
        run = await engine.start(termed(1), approval=True)
        with pytest.raises(Denied):
            await run.approve("please", by=Actor("eve", "viewer"))
        await engine.limits.dequeue_and_start()
        assert (await run.status(), executed) == (RunStatus.PENDING, [])
        await run.approve("checked", by=Actor("ann", "operator"))
        assert await run.result() == 1
        await assert_sound(engine)


async def test_a_run_that_waits_for_approval_can_be_cancelled(engine: Engine) -> None:
    run = await engine.start(termed(1), approval=True)
    await run.cancel("no")
    with pytest.raises(RunCancelled):
        await run.result()
    assert executed == []
    assert await kinds(run) == [e.ExecutionStarted, e.CancelRequested, e.ExecutionCancelled]


async def test_debounced_starts_are_one_run_with_the_last_input() -> None:
    engine = Engine("sqlite:///:memory:")
    async with simulated(engine) as clock:
        runs = []
        for n in range(4):
            runs.append(await engine.start(termed(n), key="k", debounce=10, max_wait=25))
            await clock.advance(8)
        assert len({run.run_id for run in runs}) == 1
        assert [run.is_new for run in runs] == [True, False, False, False]
        await clock.advance(3)
        assert await runs[0].result() == 3
        assert executed == [3], "no later than the longest wait"
        later = await engine.start(termed(9), key="k", debounce=1)
        assert later.run_id != runs[0].run_id
        await clock.advance(3)
        assert await later.result() == 9
        assert await engine.find(termed, "k") is None
        await assert_sound(engine)


async def test_a_debounced_start_does_not_change_a_run_that_holds_its_key(engine: Engine) -> None:
    run = await engine.start(termed(1), key="k")
    assert (await engine.start(termed(1), key="k", debounce=5)).run_id == run.run_id
    assert await run.result() == 1


async def test_graphs_deployed_by_name_may_wait(engine: Engine) -> None:
    graph = load_graph("""
graph: termed_graph
version: "1"
input: {n: int}
activities:
  work: {worker: termed_work, input: {n: n}, output: {answer: result}}
  done: {output: answer}
transitions:
  - work -> done
""")
    await engine.deploy(graph)
    await engine.activate("termed_graph", "1")
    run = await engine.start_graph("termed_graph", {"n": 4}, approval=True)
    assert await run.status() is RunStatus.PENDING
    await run.approve()
    assert await run.result() == 4


async def test_pending_runs_outlive_their_engine(shared_url: str) -> None:
    async with opened(shared_url) as first:
        run_id = (await first.start(termed(5), approval=True)).run_id
    async with opened(shared_url) as second:
        run = second.handle(run_id)
        await run.approve("later")
        assert await run.result() == 5


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"priority": 1.5}, "priority is 1.5"),
        ({"priority": 2**40}, "priority is"),
        ({"approval": "yes"}, "approval is 'yes'"),
        ({"delay": -1}, "delay"),
        ({"debounce": 5}, "without a key"),
        ({"debounce": 0, "key": "k"}, "debounce is 0"),
        ({"max_wait": 5}, "without debounce"),
        ({"debounce": 5, "max_wait": 4, "key": "k"}, "max_wait is 4"),
        ({"debounce": 5, "delay": 1, "key": "k"}, "debounce, and with delay"),
    ],
)
async def test_bad_terms_are_refused(options: dict[str, Any], what: str) -> None:
    async with Engine("sqlite:///:memory:") as engine:
        with pytest.raises(InputError, match=what):
            await engine.start(termed(1), **options)
        assert not (await engine.runs()).runs


async def test_an_unknown_option_is_refused() -> None:
    async with Engine("sqlite:///:memory:") as engine:
        start: Callable[..., Any] = engine.start
        with pytest.raises(TypeError, match="urgency"):
            await start(termed(1), urgency=1)


async def test_runs_that_were_pending_are_published_to_buses_from_their_first_entry(
    engine_url: str,
) -> None:
    seen: list[str] = []

    def take(event: ContractEvent) -> None:
        seen.append(event.type)

    async with Engine(engine_url, buses=[Subscriber(take, name="pending")]) as engine:
        run = await engine.start(termed(1), approval=True)
        await run.approve("checked", by=Actor("ann"))
        assert await run.result() == 1
        await until(lambda: "RunCompleted" in seen)
        await assert_sound(engine)
    assert seen[:2] == ["RunApproved", "RunStarted"]


async def test_a_pending_run_is_listed_by_its_state_and_its_tags(engine: Engine) -> None:
    run = await engine.start(termed(1), approval=True, tags={"customer": "acme"})

    async def found(**filters: Any) -> list[str]:
        return [each.run_id async for each in engine.iterate_runs(**filters)]

    for filters in (
        {"status": "pending"},
        {"status": ["pending", "blocked"]},
        {"tags": {"customer": "acme"}},
        {"tags": {"customer": "acme"}, "status": "pending"},
    ):
        assert await found(**filters) == [run.run_id], filters
    assert (await engine.count(status="pending")).runs == 1
    await assert_sound(engine)
    await run.approve()
    await run.result(60)
    assert await found(status="pending") == []
    assert await found(tags={"customer": "acme"}) == [run.run_id]
    await assert_sound(engine)
