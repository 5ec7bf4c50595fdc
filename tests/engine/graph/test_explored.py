"""Every kind of activity, in every variant, under every schedule of one fault."""

import pytest

from perdure.testing.workflows import Check, Ended, Race, explore_workflow
from tests.engine.catching import Record
from tests.engine.graph import flowing, staying, waiting, working
from tests.engine.graph.building import Case
from tests.engine.workflow.emptied import emptied

CASES = working.CASES | waiting.CASES | staying.CASES | flowing.CASES


def check(case: Case) -> Check | Race:
    """How the graph must end, with or without faults."""

    results = (case.results,) if isinstance(case.results, str) else case.results

    def must_end(ended: Ended) -> None:
        is_one = not results or (ended.payload or b"").decode() in results
        assert is_one and ended.status.value == case.status, f"the run must not end {ended}"  # noqa: PT018

    return Race(must_end) if case.is_race else must_end


@pytest.mark.parametrize("name", CASES)
async def test_graph_survives_any_one_fault(name: str, record_property: Record) -> None:
    case = CASES[name]
    explored = await explore_workflow(
        case.call, script=case.script, queues=["elsewhere"], check=check(case)
    )
    record_property("explored", f"graph, {name}: {explored}")


async def test_signal_and_limit_can_both_win_but_never_at_once() -> None:
    case = CASES["hook: signal and limit at once"]
    seen = set()
    await explore_workflow(
        case.call,
        script=case.script,
        modes=["warm"],
        check=Race(lambda ended: seen.add((ended.payload or b"").decode())),
    )
    assert seen == set(case.results)


@pytest.mark.postgres
@pytest.mark.parametrize(
    "name",
    [
        "trigger with keys and a child",
        "worker: queued",
        "await: error edge of a graph",
        "hook: signal by key before its limit",
        "signal to all, once each",
        "threshold: what waits is given up",
        "await: all tries fail",
        "cycle",
        "interrupt: another and its child",
        "spread: items skipped",
    ],
)
async def test_graph_survives_any_one_fault_on_postgres(
    name: str, fresh_postgres: str, record_property: Record
) -> None:
    case = CASES[name]
    explored = await explore_workflow(
        case.call,
        script=case.script,
        queues=["elsewhere"],
        modes=["warm"],
        open_store=emptied(fresh_postgres),
        check=check(case),
    )
    record_property("explored", f"graph, {name}, on Postgres: {explored}")


@pytest.mark.deep
@pytest.mark.parametrize("name", CASES)
async def test_graph_survives_any_two_faults(name: str, record_property: Record) -> None:
    case = CASES[name]
    explored = await explore_workflow(
        case.call,
        script=case.script,
        queues=["elsewhere"],
        max_faults=2,
        modes=["warm", "always replayed"],
        check=check(case),
    )
    record_property("explored", f"graph, {name}, two faults: {explored}")
