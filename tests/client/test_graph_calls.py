"""Graphs that call graphs: expanded when the program is made, and run as one."""

import pytest

from perdure import Engine, GraphBuilder, GraphInvalid, GraphProgram, task


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
    assert await run.result(10) == 41


def test_a_call_of_an_unknown_graph_is_told_when_the_program_is_made() -> None:
    inner()
    with pytest.raises(GraphInvalid, match="calls_iner") as caught:
        outer("calls_iner")
    assert len(caught.value.problems) == 2
    assert "'calls_inner'" in caught.value.problems[0].remedy
