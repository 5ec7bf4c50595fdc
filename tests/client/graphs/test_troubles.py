"""Errors in a graph follow its error edges. Values that can't be stored fail only their step."""

import asyncio
from typing import Any
from uuid import uuid4

import pytest

from perdure import (
    Engine,
    GraphProgram,
    InputError,
    ResponseError,
    RunInterrupted,
    RunStatus,
    Signal,
    task,
)
from perdure.authoring.response import Response
from perdure.core.graph import model as m
from perdure.core.journal import events as e
from perdure.testing.checkers import assert_sound
from perdure.testing.probe import Probe
from tests.client.engines import (
    opened,
    recorded,
    store_of,
    until,
    until_recorded,
    until_status,
    until_store,
)

pytestmark = pytest.mark.asyncio

ANY = m.FieldType("any")


class Peculiar(Exception):
    """Has two arguments."""


@task
async def troubles_same(of: Any = None) -> Any:
    return of


@task
async def troubles_peculiar() -> None:
    raise Peculiar("one", "two")


@task
async def troubles_not_found() -> Any:
    return Response("nothing", 404)


@task
async def troubles_more_later() -> Any:
    return Response(0, 202)


def graph(name: str, nodes: list[Any], edges: list[Any], **fields: m.FieldType) -> Any:
    made = tuple(edge if isinstance(edge, m.Edge) else m.Edge(*edge) for edge in edges)
    trigger = m.TriggerNode(name="t")
    return GraphProgram[..., Any](
        m.Graph(f"troubles.{name}", (trigger, *nodes), made, input=fields)
    )


def handled(name: str, activity: m.AnyNode) -> Any:
    """A graph that begins with the activity, and outputs its error."""
    wrong = m.OutputNode(name="wrong", value="problem['message']")
    edges = [("t", "a"), m.Edge("a", "wrong", "error", bind="problem")]
    return graph(name, [activity, wrong], edges, x=ANY)


naps = handled("naps", m.HookNode(name="a", sleep="x"))
waits = handled("waits", m.HookNode(name="a", topic="go", sleep="x"))
finds = handled("finds", m.HookNode(name="a", topic="go", key="x"))
tells = handled("tells", m.SignalNode(name="a", topic="go", key="x"))
tells_run = handled("tells_run", m.SignalNode(name="a", topic="go", run="x"))
ends_run = handled("ends_run", m.InterruptNode(name="a", target="x"))
works = handled("works", m.WorkerNode(name="a", task="troubles_same", input={"of": "float(x)"}))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: naps(x="soon"), "waits for 'soon'"),
        (lambda: waits(x=-1), "waits for -1 s"),
        (lambda: finds(x="k" * 2000), "a key"),
        (lambda: finds(x="a\0b"), "a key"),
        (lambda: tells(x="k" * 2000), "a key"),
        (lambda: tells_run(x="nobody"), "'nobody' is not a run id"),
        (lambda: ends_run(x="nobody"), "'nobody' is not a run id"),
        (lambda: works(x="inf"), "inf"),
    ],
)
async def test_what_can_not_be_asked_for_goes_along_the_edge_for_errors(
    call: Any, message: str, engine: Engine
) -> None:
    run = await engine.start(call())
    assert message in await run.result(60)
    await assert_sound(store_of(engine))


collects = graph(
    "collects",
    [
        m.SpreadNode(name="s", items="x", item="i"),
        m.WorkerNode(name="w", task="troubles_same", input={"of": "i"}),
        m.AggregateNode(name="g", of="s", collect="1 // w", into="got"),
        m.OutputNode(name="o", value="got"),
        m.OutputNode(name="wrong", value="problem['type']"),
    ],
    [
        ("t", "s"),
        ("s", "w"),
        ("w", "g"),
        ("g", "o"),
        m.Edge("g", "wrong", "error", bind="problem"),
    ],
    x=ANY,
)


async def test_what_can_not_be_collected_is_the_failure_of_the_aggregate(engine: Engine) -> None:
    run = await engine.start(collects(x=[1, 0, 2]))
    assert await run.result(60) == "ZeroDivisionError"
    assert await (await engine.start(collects(x=[1, 1]))).result(60) == [1, 1]
    await assert_sound(store_of(engine))


joins = graph(
    "joins",
    [
        m.WorkerNode(name="w", task="troubles_same"),
        m.AssignNode(name="a", set={"v": "float('inf')"}),
        m.WorkerNode(name="b", task="troubles_same"),
        m.AssignNode(name="c", set={"r": "v > 1"}),
        m.OutputNode(name="o", value="r"),
    ],
    [("t", "w"), ("w", "a"), ("w", "b"), ("a", "c"), ("b", "c"), ("c", "o")],
)


async def test_a_value_without_a_stored_form_waits_for_its_join(engine: Engine) -> None:
    run = await engine.start(joins())
    assert await run.result(60) is True
    await assert_sound(store_of(engine))


again = graph(
    "again",
    [m.WorkerNode(name="w", task="troubles_peculiar"), m.RaiseNode(name="r", again="e")],
    [("t", "w"), m.Edge("w", "r", "error", bind="e")],
)


async def test_an_error_that_is_raised_again_is_what_it_was(engine: Engine) -> None:
    run = await engine.start(again())
    with pytest.raises(Peculiar) as caught:
        await run.result(60)
    assert caught.value.args == ("one", "two")
    await assert_sound(store_of(engine))


stops = graph("stops", [m.InterruptNode(name="i", reason="'enough'", code=418)], [("t", "i")])
misses = graph("misses", [m.WorkerNode(name="w", task="troubles_not_found")], [("t", "w")])


def parent_of(program: str, code: int) -> Any:
    nodes = [
        m.AwaitNode(name="w", program=f"troubles.{program}"),
        m.OutputNode(name="right", value=f"{code}"),
        m.OutputNode(name="wrong", value="'any error'"),
    ]
    edges = [("t", "w"), m.Edge("w", "right", f"{code}"), m.Edge("w", "wrong", "error")]
    return graph(f"parent_of_{program}", nodes, edges)


parent_of_stops, parent_of_misses = parent_of("stops", 418), parent_of("misses", 404)


@pytest.mark.parametrize(("call", "code"), [(parent_of_stops, 418), (parent_of_misses, 404)])
async def test_the_code_of_a_child_that_failed_is_its_code(
    call: Any, code: int, engine: Engine
) -> None:
    assert await (await engine.start(call())).result(60) == code
    await assert_sound(store_of(engine))


promises_text = GraphProgram[..., Any](
    m.Graph(
        "troubles.promises_text",
        (m.TriggerNode(name="t"), m.OutputNode(name="o", value="{'r': x}")),
        (m.Edge("t", "o"),),
        input={"x": ANY},
        output={"r": m.FieldType("str")},
    )
)


async def test_output_of_another_type_than_declared_fails_the_run(engine: Engine) -> None:
    assert await (await engine.start(promises_text(x="text"))).result(60) == {"r": "text"}
    with pytest.raises(InputError, match="'r' is 5, and has to be of type str"):
        await (await engine.start(promises_text(x=5))).result(60)
    await assert_sound(store_of(engine))


async def test_client_gets_the_response_code(engine: Engine) -> None:
    with pytest.raises(RunInterrupted, match="enough") as stopped:
        await (await engine.start(stops())).result(60)
    assert stopped.value.status == 418
    with pytest.raises(ResponseError, match="code 404: nothing") as missed:
        await (await engine.start(misses())).result(60)
    assert missed.value.status == 404


# Answers that leave a step open, if all goes well


TENTH = {"q": "10 // result"}

in_parts = graph(
    "in_parts",
    [
        m.AssignNode(name="begin", set={"n": "0"}),
        m.HookNode(name="turn", cycle=True),
        m.HookNode(name="h", topic="troubles.in_parts", key="'k'", pending=True, output=TENTH),
        m.AssignNode(name="bad", set={}, job={"bad": "1"}),
        m.CycleNode(name="again", to="turn", input={"n": "n + 1"}),
        m.OutputNode(name="done", value="n"),
    ],
    [
        ("t", "begin"),
        ("begin", "turn"),
        ("turn", "h"),
        m.Edge("h", "bad", "error"),
        m.Edge("h", "again", when="n < 1"),
        m.Edge("h", "done", when="n >= 1"),
    ],
)


async def test_an_answer_in_parts_whose_map_fails_ends_its_step(engine: Engine) -> None:
    run = await engine.start(in_parts())
    await engine.send("troubles.in_parts", "k", 0, code=202)
    assert await run.result(60) == {"bad": 1}
    # What is sent now is for the next one.
    for _ in range(2):
        await engine.send("troubles.in_parts", "k", 1)
    assert await (await engine.start(in_parts())).result(60) == 1
    await assert_sound(store_of(engine))


async def test_an_answer_in_parts_that_leads_nowhere_leaves_its_step_open(engine: Engine) -> None:
    run = await engine.start(in_parts())
    await engine.send("troubles.in_parts", "k", 5, code=202)
    for _ in range(2):
        await engine.send("troubles.in_parts", "k", 1)
    assert await run.result(60) == 1
    await assert_sound(store_of(engine))


unmarked = graph(
    "unmarked",
    [
        m.HookNode(name="h", topic="troubles.unmarked", key="k", output=TENTH),
        m.AssignNode(name="bad", set={"q": "-1"}),
        m.WorkerNode(name="j", task="troubles_same", input={"of": "q"}),
        m.HookNode(name="end", topic="troubles.end"),
        m.OutputNode(name="o", value="[j, end]"),
    ],
    [("t", "h"), m.Edge("h", "bad", "error"), ("bad", "j"), ("h", "j"), ("j", "end"), ("end", "o")],
    k=ANY,
)


@pytest.mark.parametrize(("first", "found"), [(0, -1), (1, 2)])
async def test_what_follows_a_step_that_is_not_said_to_be_pending_begins_once(
    first: int, found: int, engine: Engine
) -> None:
    run = await engine.start(unmarked(k=first))
    await engine.send("troubles.unmarked", str(first), first, code=202)
    await engine.send("troubles.unmarked", str(first), 5)
    await run.signal(Signal("troubles.end", int), 7)
    assert await run.result(60) == [found, 7]
    scheduled = await recorded(engine, run, e.InvokeScheduled)
    assert [event.promise_id for event in scheduled] == ["j,0,0,0"]
    await assert_sound(store_of(engine))


each = graph(
    "each",
    [
        m.SpreadNode(name="s", items="['a', 'b']", item="k"),
        m.HookNode(name="h", topic="troubles.each", key="k", output=TENTH),
        m.AssignNode(name="bad", set={"q": "-1"}),
        m.AggregateNode(name="g", of="s", collect="q", into="got"),
        m.OutputNode(name="o", value="got"),
    ],
    [("t", "s"), ("s", "h"), m.Edge("h", "bad", "error"), ("bad", "g"), ("h", "g"), ("g", "o")],
)


async def test_an_item_that_answers_in_parts_comes_to_its_end_once(engine: Engine) -> None:
    run = await engine.start(each())
    await engine.send("troubles.each", "a", 0, code=202)
    await engine.send("troubles.each", "a", 5)
    await engine.send("troubles.each", "b", 1, code=202)
    await engine.send("troubles.each", "b", 5)
    assert await run.result(60) == [-1, 2]
    await assert_sound(store_of(engine))


asks = graph(
    "asks",
    [
        m.WorkerNode(name="w", task="troubles_more_later", pending=True, output=TENTH),
        m.AssignNode(name="bad", set={}, job={"bad": "1"}),
        m.HookNode(name="end", topic="troubles.end"),
    ],
    [("t", "w"), m.Edge("w", "bad", "error"), ("bad", "end"), ("w", "end")],
)


async def test_a_response_comes_late_once_a_map_has_failed(engine: Engine) -> None:
    run = await engine.start(asks())
    await until_recorded(engine, run, e.InvokeCompleted)
    await run.respond("w", 5)
    await run.signal(Signal("troubles.end", int), 7)
    assert await run.result(60) == {"bad": 1}
    received = await recorded(engine, run, e.SignalReceived)
    assert [event.signal_name for event in received] == ["troubles.end"]
    await assert_sound(store_of(engine))


@pytest.mark.parametrize("lacking", ["first", "later"])
async def test_run_parks_for_a_task_that_its_process_lacks_and_resumes_where_it_is_known(
    shared_url: str, lacking: str, request: pytest.FixtureRequest
) -> None:
    # The name is new each time: tasks stay registered from one test to the next.
    name = f"troubles_lacking_{abs(hash(request.node.name))}"
    program = graph(
        f"lacking_{abs(hash(request.node.name))}",
        [
            m.WorkerNode(name="a", task=name if lacking == "first" else "troubles_same"),
            m.WorkerNode(name="b", task=name),
            m.OutputNode(name="o", value="b"),
        ],
        [("t", "a"), ("a", "b"), ("b", "o")],
    )
    async with opened(shared_url) as engine:
        run = await engine.start(program())
        await until_status(run, RunStatus.PARKED)
        row = await store_of(engine).run(run.run_id)
        assert row.parked.startswith(f"unknown-name: graph {program.name!r} calls task {name!r}")
        assert "import the module that defines it" in row.parked

    @task(name=name)
    async def known_elsewhere() -> int:
        return 5

    async with opened(shared_url) as engine:
        assert await engine.handle(run.run_id).result(60) == 5


@pytest.mark.parametrize("names_task", ["by name", "by a computed name"])
async def test_host_releases_a_run_whose_task_it_lacks_for_a_host_that_has_it(
    shared_url: str, names_task: str
) -> None:
    name = f"troubles_{uuid4().hex}"
    called: dict[str, Any] = (
        {"task": name} if names_task == "by name" else {"task_from": repr(name)}
    )
    program = graph(
        uuid4().hex,
        [m.WorkerNode(name="a", **called), m.OutputNode(name="o", value="a")],
        [("t", "a"), ("a", "o")],
    )
    async with opened(shared_url) as engine:
        run = await engine.start(program())

        async def is_released() -> bool:
            row = await store_of(engine).run(run.run_id)
            return row.parked is not None and row.owner is None

        await until_store(is_released)
        # It would claim the run again at once otherwise, and no other host could.
        programs = Probe(engine).host.dispatcher.programs
        assert program.name not in programs.names()

        @task(name=name)
        async def known_later() -> int:
            return 5

        assert program.name in programs.names()
        async with opened(shared_url):
            assert await run.result(60) == 5


async def test_host_claims_a_run_whose_task_it_lacks_only_once(shared_url: str) -> None:
    program = graph(
        uuid4().hex, [m.WorkerNode(name="a", task=f"troubles_{uuid4().hex}")], [("t", "a")]
    )
    async with opened(shared_url) as engine:
        run = await engine.start(program())
        await until_status(run, RunStatus.PARKED)
    async with opened(shared_url) as engine, asyncio.timeout(30):
        before = await store_of(engine).run(run.run_id)
        programs = Probe(engine).host.dispatcher.programs
        await until(lambda: program.name not in programs.names())
        await Probe(engine).poll()  # returns when the takeover has ended
        after = await store_of(engine).run(run.run_id)
        assert after.owner is None
        assert after.epoch <= before.epoch + 2
        await engine.handle(run.run_id).cancel()
