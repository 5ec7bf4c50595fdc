"""Graphs that wait for answers from outside: steps that responded with 202, signals to topic and key."""

import asyncio

import pytest

from perdure import (
    Engine,
    Handle,
    HookWait,
    InputError,
    JoinWait,
    RunClosed,
    RunStatus,
    UnknownRun,
    UnknownStep,
    Waits,
    workflow,
)
from perdure.core.graph import model as m
from perdure.core.graph.model import Edge, Graph
from perdure.core.journal import events as e
from tests.client.engines import opened, recorded, store_of, until_recorded
from tests.client.programs.deployable import adding, asking, graph, until_waiting


async def started(engine: Engine, model: Graph, **fields: object) -> Handle[object]:
    await engine.deploy(model)
    await engine.activate(model.name, model.version)
    return await engine.start_graph(model.name, fields)


async def until_asked(engine: Engine, run: Handle[object]) -> None:
    await until_recorded(engine, run, e.InvokeCompleted)


# Responses


async def test_a_step_that_responded_with_202_is_answered(engine: Engine) -> None:
    run = await started(engine, asking("asking"), who="Ada")
    await until_asked(engine, run)
    await run.respond("ask", "no idea yet", code=202)
    await run.respond("ask", 42)
    assert await run.result(60) == 42
    received = await recorded(engine, run, e.SignalReceived)
    assert [event.stays for event in received] == [True, False]


async def test_an_answer_may_be_quicker_than_the_202(engine: Engine) -> None:
    run = await started(engine, asking("asking", "deployable.ask_slowly"), who="Ada")
    await run.respond("ask", 42)
    assert await run.result(60) == 42


async def test_an_answer_with_an_id_counts_once(engine: Engine) -> None:
    run = await started(engine, asking("asking"), who="Ada")
    await until_asked(engine, run)
    for _ in range(3):
        await run.respond("ask", "wait", code=202, id="first")
    await until_recorded(engine, run, e.SignalReceived)
    await run.respond("ask", "wait", code=202, id="first")
    await run.respond("ask", 42, id="last")
    assert await run.result(60) == 42
    # A client that got no acknowledgement may send it again, even after the run ended.
    await run.respond("ask", 42, id="last")
    assert len(await recorded(engine, run, e.SignalReceived)) == 2


async def test_an_answer_may_be_an_error(engine: Engine) -> None:
    run = await started(engine, asking("asking"), who="Ada")
    await until_asked(engine, run)
    await run.respond("ask", "no such person", code=404)
    with pytest.raises(Exception, match="code 404: no such person"):
        await run.result(60)


async def test_what_has_no_such_step_is_not_answered(engine: Engine) -> None:
    run = await started(engine, asking("asking"), who="Ada")
    await until_asked(engine, run)
    with pytest.raises(UnknownStep, match="has no step 'other'") as caught:
        await run.respond("other", 1)
    assert "'ask,0,0'" in caught.value.remedy
    with pytest.raises(UnknownStep, match="has no step 'ask,0,1'"):
        await run.respond("ask,0,1", 1)
    for wrong in ("", None, 7):
        with pytest.raises(InputError):
            await run.respond(wrong, 1)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="code 99"):
        await run.respond("ask", 1, code=99)
    await run.respond("ask,0,0", 42)
    assert await run.result(60) == 42


async def test_a_run_that_is_over_takes_no_answers(engine: Engine) -> None:
    run = await started(engine, asking("asking"), who="Ada")
    await until_asked(engine, run)
    await run.respond("ask", 42)
    await run.result(60)
    with pytest.raises(RunClosed, match="can't take an answer for step 'ask,0,0'"):
        await run.respond("ask", 43)
    with pytest.raises(UnknownRun):
        await engine.handle(f"r_{'0' * 32}").respond("ask", 1)


async def test_completed_step_can_not_be_answered(engine: Engine) -> None:
    model = graph(
        "asking",
        m.WorkerNode(name="ask", task="deployable.ask", input={"who": "who"}, pending=True),
        m.HookNode(name="go", topic="go", key="who"),
        m.OutputNode(name="out", value="ask"),
        edges="start ask go out",
        who="str",
    )
    run = await started(engine, model, who="Ada")
    await until_asked(engine, run)
    await run.respond("ask", 42)
    await until_waiting(run)
    with pytest.raises(UnknownStep, match="does not wait for an answer to step 'ask,0,0'"):
        await run.respond("ask", 43)
    await engine.send("go", "Ada")
    assert await run.result(60) == 42


async def test_workflows_have_no_steps_to_answer(engine: Engine) -> None:
    @workflow
    async def plain() -> int:
        return 1

    run = await engine.start(plain())
    await run.result(60)
    with pytest.raises(UnknownStep, match=r"has no step 'root\.0'"):
        await run.respond("root.0", 1)


async def test_of_an_activity_that_is_under_way_often_a_step_is_named(engine: Engine) -> None:
    model = Graph(
        "asking",
        (
            m.TriggerNode(name="start"),
            m.WorkerNode(name="ask", task="deployable.ask", input={"who": "who"}, pending=True),
            m.WorkerNode(name="more", task="deployable.ask", input={"who": "ask"}, pending=True),
            m.OutputNode(name="out", value="ask"),
        ),
        (Edge("start", "ask"), Edge("ask", "more", on="pending"), Edge("ask", "out")),
        "1",
        {"who": m.FieldType("str")},
    )
    run = await started(engine, model, who="Ada")
    await until_recorded(engine, run, e.InvokeCompleted, 2)
    await run.respond("ask", "Bob", code=202)
    await until_recorded(engine, run, e.InvokeCompleted, 3)
    with pytest.raises(UnknownStep, match="has 2 open steps") as caught:
        await run.respond("more", 1)
    for step in caught.value.remedy.partition(": ")[2].split("', '"):
        await run.respond(step.strip("'"), 1)
    await run.respond("ask", 42)
    assert await run.result(60) == 42


async def test_an_answer_joins_a_transaction(engine: Engine) -> None:
    run = await started(engine, asking("asking"), who="Ada")
    await until_asked(engine, run)

    async def rolled_back() -> None:
        async with engine.transaction():
            await run.respond("ask", "never")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await rolled_back()
    async with engine.transaction():
        await run.respond("ask", 42)
    assert await run.result(60) == 42


# Signals to topic and key


async def test_signal_matches_an_earlier_and_a_later_hook(engine: Engine) -> None:
    await engine.send("go", "early")
    early = await started(engine, adding("adding"), x=1, k="early")
    assert await early.result(60) == 2
    late = await engine.start_graph("adding", {"x": 2, "k": "late"})
    await until_waiting(late)
    async with asyncio.timeout(60):
        await engine.send("go", "late")
        assert await late.result() == 3


async def test_one_hook_gets_a_signal(engine: Engine) -> None:
    first = await started(engine, adding("adding"), x=1, k="k")
    await until_waiting(first)
    second = await engine.start_graph("adding", {"x": 2, "k": "k"})
    await until_waiting(second)
    await engine.send("go", "k")
    assert await first.result(60) == 2
    assert await second.status() is RunStatus.RUNNING
    await engine.send("go", "k", id="once")
    await engine.send("go", "k", id="once")
    assert await second.result(60) == 3


async def test_signals_with_one_id_are_one_until_a_run_receives_it(engine: Engine) -> None:
    for _ in range(3):
        await engine.send("go", "k", id="once")
    first = await started(engine, adding("adding"), x=1, k="k")
    assert await first.result(60) == 2
    second = await engine.start_graph("adding", {"x": 2, "k": "k"})
    await until_waiting(second)
    await second.cancel()


async def test_a_signal_is_sent_with_a_transaction_or_not_at_all(engine: Engine) -> None:
    run = await started(engine, adding("adding"), x=1, k="k")
    await until_waiting(run)

    async def rolled_back() -> None:
        async with engine.transaction():
            await engine.send("go", "k")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await rolled_back()
    async with engine.transaction():
        await engine.send("go", "k")
    assert await run.result(60) == 2


async def test_keys_are_compared_as_text_and_others_as_json(engine: Engine) -> None:
    model = graph(
        "keyed",
        m.HookNode(name="go", topic="go", key="k", output={"got": "result"}),
        m.OutputNode(name="out", value="got"),
        edges="start go out",
        k="any",
    )
    run = await started(engine, model, k=[1, {"b": 2, "a": 1}])
    await engine.send("go", [1, {"a": 1, "b": 2}], {"said": "hello"})
    assert await run.result(60) == {"said": "hello"}


@pytest.mark.parametrize(
    ("topic", "key", "options"),
    [
        ("", "k", {}),
        (None, "k", {}),
        ("t" * 300, "k", {}),
        ("go\0", "k", {}),
        ("go", "", {}),
        ("go", object(), {}),
        ("go", "k" * 2000, {}),
        ("go", "k", {"code": 99}),
        ("go", "k", {"id": ""}),
        ("go", "k", {"value": object()}),
    ],
)
async def test_a_signal_that_can_not_be_is_refused(
    engine_url: str, topic: object, key: object, options: dict[str, object]
) -> None:
    async with opened(engine_url) as engine:
        with pytest.raises(InputError):
            await engine.send(topic, key, **options)  # type: ignore[arg-type]


# Looking


async def test_what_a_run_waits_for_can_be_seen(engine: Engine) -> None:
    model = Graph(
        "joining",
        (
            m.TriggerNode(name="start"),
            m.AssignNode(name="a", set={"one": "1"}),
            m.HookNode(name="go", topic="go", key="k"),
            m.WorkerNode(name="total", task="deployable.add", input={"a": "one", "b": "1"}),
            m.OutputNode(name="out", value="total"),
        ),
        (
            Edge("start", "a"),
            Edge("start", "go"),
            Edge("a", "total"),
            Edge("go", "total"),
            Edge("total", "out"),
        ),
        "1",
        {"k": m.FieldType("str")},
    )
    run = await started(engine, model, k="here")
    await until_waiting(run)
    waits = await run.waits()
    (hook,) = waits.hooks
    assert hook == HookWait(hook.step, "go", "here", hook.since_ms)
    assert hook.step.startswith("go,")
    (join,) = waits.joins
    assert join == JoinWait(join.step, 2, 1)
    assert join.step.startswith("total,")
    await engine.send("go", "here")
    assert await run.result(60) == 2
    assert await run.waits() == Waits([], [])


async def test_runs_are_counted_by_search_key(engine: Engine) -> None:
    model = graph(
        "counted",
        m.TriggerNode(name="start", keys={"customer": "who"}),
        m.HookNode(name="go", topic="go", key="who"),
        edges="start go",
        who="str",
    )
    run = await started(engine, model, who="Ada")
    others = [await engine.start_graph("counted", {"who": who}) for who in ("Bob", "Ada")]
    await until_waiting(others[-1])
    await others[-1].cancel()
    await engine.send("go", "Bob")
    await others[0].result(60)
    with pytest.raises(Exception, match="cancelled"):
        await others[-1].result(60)
    assert await engine.statistics("counted", "customer") == {
        "Ada": {RunStatus.RUNNING: 1, RunStatus.CANCELLED: 1},
        "Bob": {RunStatus.COMPLETED: 1},
    }
    assert await engine.statistics("counted", "other") == {}
    assert await engine.statistics("other", "customer") == {}
    with pytest.raises(InputError):
        await engine.statistics("counted", "")
    assert (await store_of(engine).run(run.run_id)).closed_at_ms is None
