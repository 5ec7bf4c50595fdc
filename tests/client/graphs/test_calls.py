"""Graphs that call graphs: expanded when the program is made, and run as one."""

import pytest

from perdure import Engine, GraphBuilder, GraphInvalid, GraphProgram, task
from perdure.client.deployments import check_and_expand
from perdure.core.graph.model import FieldType, Graph


@task(name="calls.double")
async def double(n: int) -> int:
    return n * 2


def inner() -> GraphProgram[..., object]:
    b = GraphBuilder("calls_inner", input={"n": int})
    b.worker("twice", double, input={"n": b.input.n})
    b.output("out", "twice")
    b.chain("twice", "out")
    return GraphProgram(b.build())


def outer(called: str) -> GraphProgram[..., object]:
    b = GraphBuilder("calls_outer", input={"n": int})
    b.call("first", called, input={"n": "n"})
    b.call("second", called, input={"n": "first"})
    b.output("out", "second + 1")
    b.chain("first", "second", "out")
    return GraphProgram(b.build())


async def test_a_graph_that_calls_another_runs_as_one(engine: Engine) -> None:
    inner()
    program = outer("calls_inner")
    assert "second/twice" in {node.name for node in program.model.nodes}
    run = await engine.start(program(n=10))
    assert await run.result(60) == 41


def test_call_of_an_unknown_graph_is_refused_when_the_program_is_made() -> None:
    inner()
    with pytest.raises(GraphInvalid, match="calls_iner") as caught:
        outer("calls_iner")
    assert len(caught.value.problems) == 2
    assert "'calls_inner'" in caught.value.problems[0].remedy


def spreading() -> GraphProgram[..., object]:
    b = GraphBuilder("calls_spreading", input={"ns": list})
    b.spread("each", "ns", item="n")
    b.worker("twice", double, input={"n": "n"})
    b.aggregate("all", of="each", collect="twice", into="found")
    b.output("out", "found")
    b.chain("each", "twice", "all", "out")
    return GraphProgram(b.build())


def handling(*, is_awaited: bool) -> Graph:
    """What calls or awaits the other, and handles its errors."""
    b = GraphBuilder("calls_handling", version="1", input={"ns": list})
    place = b.wait_for if is_awaited else b.call
    place("inner", "calls_spreading", input={"ns": "ns"})
    b.output("out", "inner")
    b.output("handled", "f'handled {e.message}'")
    b.chain("inner", "out")
    b.edge("inner", "handled", on="error", bind="e")
    return b.build()


async def test_a_call_with_error_edges_of_a_graph_with_a_spread_is_refused(engine: Engine) -> None:
    spreading()
    graph = handling(is_awaited=False)
    for refuse in (GraphProgram, check_and_expand):
        with pytest.raises(GraphInvalid, match="start it with an await") as caught:
            refuse(graph)
        assert [problem.node for problem in caught.value.problems] == ["inner"]
    with pytest.raises(GraphInvalid, match="start it with an await"):
        await engine.deploy(graph)
    assert await engine.graphs() == []


async def test_it_is_awaited_instead(engine: Engine) -> None:
    spreading()
    program = GraphProgram(handling(is_awaited=True))
    assert await (await engine.start(program(ns=[1, 2]))).result(60) == [2, 4]
    said = await (await engine.start(program(ns=[1, "x"]))).result(60)
    assert str(said).startswith("handled ")


async def test_fields_of_the_input_may_have_reserved_names(engine: Engine) -> None:
    b = GraphBuilder(
        "calls_reserved",
        input={"code": int, "result": int, "error": str, "job": FieldType("int", False, 7)},
    )
    b.worker("twice", double, input={"n": b.input.code}, output={"got": "[result, input.result]"})
    b.output("out", "[got, input.code, input.error, input.job, job]")
    b.chain("twice", "out")
    inner = GraphProgram(b.build())
    given = {"code": 4, "result": 5, "error": "no"}
    expected = [[8, 5], 4, "no", 7, {}]
    assert await (await engine.start(inner(**given))).result(60) == expected
    c = GraphBuilder("calls_reserved_outer", input={"code": int})
    c.call("it", "calls_reserved", input={"code": "input.code", "result": "2 + 3", "error": "'no'"})
    c.output("out", "it")
    c.chain("it", "out")
    assert await (await engine.start(GraphProgram(c.build())(code=4))).result(60) == expected


def test_a_graph_with_a_threshold_is_awaited_and_not_called() -> None:
    b = GraphBuilder("calls_early", input={"n": int}, threshold=1)
    b.worker("twice", double, input={"n": "n"})
    b.output("out", "twice")
    b.chain("twice", "out")
    assert GraphProgram(b.build()).model.threshold == 1
    with pytest.raises(GraphInvalid, match="completes at threshold 1") as caught:
        outer("calls_early")
    assert "await" in caught.value.problems[0].remedy
