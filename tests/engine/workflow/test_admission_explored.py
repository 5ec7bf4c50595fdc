"""Admission under every schedule of one fault: a run that waits begins once, and ends as without faults."""

from collections.abc import Callable
from typing import Any

import pytest

from perdure import Actor, GraphProgram, Handle, Limit, load_graph, task, workflow
from perdure.authoring.program import Program
from perdure.host.runs.batch import NO_TERMS, RunStart
from perdure.testing import workflows
from perdure.testing.workflows import MODES, explore_workflow
from tests.engine.catching import Record

ONE = Limit("explored_one", running=1)


@task(name="admitted_double")
async def double(n: int) -> int:
    return 2 * n


@workflow(name="admitted", limit=ONE)
async def admitted(n: int) -> int:
    return await double(await double(n))


GRAPH = GraphProgram(
    load_graph("""
graph: admitted_graph
input: {n: int}
activities:
  double: {worker: admitted_double, input: {n: n}, output: {answer: result}}
  done: {output: answer}
transitions:
  - double -> done
"""),
    limit=Limit("explored_graph", running=1),
)

CALLS: dict[str, Callable[[], Any]] = {
    "workflow": lambda: admitted(3),
    "graph": lambda: GRAPH(n=3),
}


@pytest.fixture
def needing_approval(monkeypatch: pytest.MonkeyPatch) -> None:
    """Explored starts need approval."""
    terms = NO_TERMS._replace(needs_approval=True)

    def asking(program: Program[..., Any], payload: bytes, key: str) -> RunStart:
        return RunStart(program, payload, key, terms=terms)

    monkeypatch.setattr(workflows, "RunStart", asking)


async def approve(handle: Handle[Any]) -> None:
    await handle.approve("fine", by=Actor("ann"), id="approval")


async def cancel(handle: Handle[Any]) -> None:
    await handle.cancel("not needed")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", CALLS)
async def test_a_host_may_die_between_admission_and_start(
    name: str, mode: str, record_property: Record
) -> None:
    explored = await explore_workflow(CALLS[name], modes=[mode])
    record_property("explored", f"admitted {name}, {mode}: {explored}")
    assert "1 starts: crash after" in explored.faults


@pytest.mark.usefixtures("needing_approval")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", CALLS)
async def test_an_approved_run_begins_once_whatever_dies(
    name: str, mode: str, record_property: Record
) -> None:
    explored = await explore_workflow(CALLS[name], script=approve, modes=[mode])
    record_property("explored", f"approved {name}, {mode}: {explored}")
    assert "admission of 1: crash after" in explored.faults


@pytest.mark.usefixtures("needing_approval")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", CALLS)
async def test_a_cancelled_pending_run_executes_nothing_whatever_dies(
    name: str, mode: str, record_property: Record
) -> None:
    explored = await explore_workflow(CALLS[name], script=cancel, modes=[mode], check="cancelled")
    record_property("explored", f"cancelled {name}, {mode}: {explored}")


@pytest.mark.deep
@pytest.mark.usefixtures("needing_approval")
async def test_an_approved_run_survives_any_two_faults(record_property: Record) -> None:
    explored = await explore_workflow(
        CALLS["workflow"], script=approve, modes=["warm"], max_faults=2
    )
    record_property("explored", f"approved, two faults: {explored}")
