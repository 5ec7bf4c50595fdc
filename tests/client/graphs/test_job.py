"""Job data of a graph that persists it: clients read it while the run is open, and after it has ended."""

from typing import Any

import pytest

from perdure import Engine, GraphBuilder, RunInterrupted, Signal, task
from perdure.authoring.graphs.program import GraphProgram
from perdure.testing import assert_sound
from perdure.testing.probe import Probe

go = Signal("go", int)


@task
async def job_add(a: int, b: int) -> int:
    return a + b


def program(name: str, *, persist: bool = True, step: str = "'ended'") -> GraphProgram[..., Any]:
    b = GraphBuilder(name)
    b.trigger("begin", job={"step": "'begun'"}, persist=persist)
    b.worker("add", job_add, input={"a": 1, "b": 2}, job={"step": "'added'", "sum": "result"})
    b.hook("wait", go)
    b.interrupt("stop", reason="'enough'", job={"step": step})
    b.chain("begin", "add", "wait", "stop")
    return GraphProgram[..., Any](b.build())


persisting = program("job_persisting")
forgetting = program("job_forgetting", persist=False)
stumbling = program("job_stumbling", step="1 / 0")


async def ended(engine: Engine, program: GraphProgram[..., Any]) -> tuple[Any, Any]:
    run = await engine.start(program())
    await run.signal(go, 1)
    with pytest.raises((RunInterrupted, ZeroDivisionError)) as caught:
        await run.result(timeout=60)
    return type(caught.value), await run.published()


async def test_job_data_is_published_as_it_changes(shared_url: str) -> None:
    async with Engine(shared_url) as engine:
        run = await engine.start(persisting())
        while (await run.published()).get("job") != {"step": "added", "sum": 3}:
            await run.waits()
        last = {"job": {"step": "ended", "sum": 3}}
        assert await ended(engine, persisting) == (RunInterrupted, last)
        assert await ended(engine, forgetting) == (RunInterrupted, {})
        await assert_sound(Probe(engine).store)


async def test_interrupt_whose_job_data_fails_fails_as_an_activity(shared_url: str) -> None:
    async with Engine(shared_url) as engine:
        kind, published = await ended(engine, stumbling)
        assert kind is ZeroDivisionError
        assert published["job"] == {"step": "added", "sum": 3}
        await assert_sound(Probe(engine).store)
