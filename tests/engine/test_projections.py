"""Views under the crash explorer, of workflows and of graphs."""

import pytest

import perdure
from perdure import GraphBuilder, GraphProgram, Handle, Retry, Signal, task, workflow
from perdure.testing.explorer import explore
from perdure.testing.workflows import explore_workflow
from tests.core.runs.projector_bugs import SkipsGaps
from tests.engine.catching import Record, catching
from tests.engine.projections import LaggingReplica, projected_store

go = Signal("projections.go", int)


@task(name="projections.add", retry=Retry(attempts=3, first=0.001))
async def add(a: int, b: int) -> int:
    if perdure.info().attempt == 1:
        raise ConnectionError("not yet")
    return a + b


@workflow(name="projections.child")
async def child(n: int) -> int:
    return await add(n, 1)


@workflow(name="projections.parent")
async def parent(turn: int) -> int:
    one, two = await perdure.gather(child(1), add(1, turn))
    await perdure.sleep(0.01)
    value = await go.receive() if turn == 0 else 0
    if turn == 0:
        await perdure.continue_as_new(parent(1))
    return one + two + value


def program() -> GraphProgram[..., int]:
    b = GraphBuilder("projections_graph")
    b.worker("sum", add, input={"a": 1, "b": 2}, output={"three": "result"})
    b.hook("wait", go, output={"value": "result"})
    b.output("done", "three + value")
    b.chain("sum", "wait", "done")
    return GraphProgram[..., int](b.build())


graph_run = program()


async def send(run: Handle[int]) -> None:
    await run.signal(go, 5, id="five")


@pytest.mark.parametrize("mode", ["warm", "stepwise"])
async def test_views_of_a_workflow_agree_under_any_fault(
    mode: str, record_property: Record
) -> None:
    explored = await explore_workflow(
        lambda: parent(0), script=send, modes=[mode], open_store=projected_store
    )
    record_property("explored", f"views of a workflow, {mode}: {explored}")
    assert explored.schedules > 20


@pytest.mark.parametrize("mode", ["warm", "stepwise"])
async def test_views_of_a_graph_agree_under_any_fault(mode: str, record_property: Record) -> None:
    explored = await explore_workflow(
        graph_run, script=send, modes=[mode], open_store=projected_store
    )
    record_property("explored", f"views of a graph, {mode}: {explored}")
    assert explored.schedules > 10


async def test_a_projector_behind_a_lagging_replica_skips_nothing(record_property: Record) -> None:
    explored = await explore(LaggingReplica(), max_faults=2)
    record_property("explored", f"a lagging replica: {explored}")
    assert explored.schedules > 50


async def test_the_seeded_bug_of_a_skipped_gap_is_caught(record_property: Record) -> None:
    with catching("gap that is skipped", "snapshots differ", record_property):
        await explore(LaggingReplica(SkipsGaps))
