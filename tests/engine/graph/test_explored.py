"""Every kind of activity, in every variant, under every schedule of one fault."""

import pytest

from perdure.testing.workflows import Check, Ended, Race, explore_workflow
from tests.engine.catching import Record
from tests.engine.graph import flowing, staying, waiting, working
from tests.engine.graph.building import Case
from tests.engine.modes import WITH_FAULTS, explore_one_fault
from tests.engine.workflow.emptied import emptied

CASES = working.CASES | waiting.CASES | staying.CASES | flowing.CASES

LONG = {
    "worker: 202 and early responses": "worker: 202, 202, 200",
    "await: retried until it is done": "await: retried in vain",
    "hook: signal by key before its limit": "hook: signal before its limit",
    "hook: signal by key, as one limit ends and the next begins": "hook: signal by key and limit at once",
    "hook: 202, then 200, by key": "hook: 202, then 200",
    "names that are computed": "signal by topic and key",
    "signal to all": "signal to all, before one is born",
    "signal to all, once each": "signal to all, before one is born",
    "signal to all, scrubbed": "signal to all, before one is born",
    "202 whose output fails: hook by key, with a limit": "202 whose output fails: hook",
    "202 whose output fails: hook by key, after a good one": "202 whose output fails: hook",
    "202 whose job fails: hook": "202 whose output fails: hook",
    "202 whose output fails: worker, with an early response": "202 whose output fails: worker",
    "202 whose output fails: worker, second response": "202 whose output fails: worker",
    "202 whose output fails: in a loop, which is left": "202 whose condition fails: hook",
    "202 whose output fails: in a loop, which turns": "202 whose condition fails: hook",
    "202 whose output fails: worker in a spread": "202 whose output fails: worker in a spread, no edge",
    "202 to hooks in a spread that are not said to be pending": "202 to a hook that is not said to be pending",
    "202 whose output fails: hook in a spread": "202 whose output fails: hook in a spread, no edge",
}
"""Cases with very many schedules step by step, and for each a smaller one with the same kind of activity. `make test`
explores the long ones in the warm mode, and the smaller ones in all.
"""


def modes_of(name: str) -> list[str]:
    return [mode for mode in WITH_FAULTS if name not in LONG or mode != "stepwise"]


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
    explored = await explore_one_fault(
        case.call,
        script=case.script,
        queues=["elsewhere"],
        modes=modes_of(name),
        check=check(case),
    )
    record_property("explored", f"graph, {name}: {explored}")


def test_a_smaller_case_of_each_kind_is_explored_step_by_step() -> None:
    assert LONG.keys() <= CASES.keys()
    assert all("stepwise" in modes_of(smaller) for smaller in LONG.values())


@pytest.mark.deep
@pytest.mark.parametrize("name", LONG)
async def test_long_graph_survives_any_one_fault_step_by_step(
    name: str, record_property: Record
) -> None:
    case = CASES[name]
    explored = await explore_workflow(
        case.call,
        script=case.script,
        queues=["elsewhere"],
        modes=["stepwise"],
        check=check(case),
    )
    record_property("explored", f"graph, {name}, step by step: {explored}")


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
    name: str, emptied_postgres: str, record_property: Record
) -> None:
    case = CASES[name]
    explored = await explore_workflow(
        case.call,
        script=case.script,
        queues=["elsewhere"],
        modes=["warm"],
        open_store=emptied(emptied_postgres),
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
