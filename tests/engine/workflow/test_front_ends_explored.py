"""Runs that front ends start and send to: whichever front end or host dies, and if a host lacks the program."""

import pytest

from perdure.testing.explorer import Exploration, OpenStore, memory_store
from perdure.testing.front_ends import LACKS
from perdure.testing.workflows import FRONT_ENDS, explore_workflow
from tests.engine.catching import Record, catching
from tests.engine.workflow.emptied import emptied
from tests.engine.workflow.front_end_bugs import BUGS
from tests.engine.workflow.front_ends import PROGRAMS


async def _explore(
    name: str, max_faults: int = 1, open_store: OpenStore = memory_store
) -> Exploration:
    program = PROGRAMS[name]
    return await explore_workflow(
        program.call,
        script=program.script,
        queues=["elsewhere"],
        max_faults=max_faults,
        modes=[FRONT_ENDS],
        open_store=open_store,
        check=program.check,
    )


@pytest.mark.parametrize("name", PROGRAMS)
async def test_run_of_a_front_end_survives_any_fault(name: str, record_property: Record) -> None:
    explored = await _explore(name)
    expected = {
        "commit 1: crash after",
        "claim_runs: crash after",
        "1 unowned runs: are asked for first",
        f"host-1: {LACKS}",
    }
    if name == "hearing":
        expected |= {f"message 2: is sent again {when}" for when in ("at once", "later")}
    assert expected <= explored.faults
    record_property("explored", f"front end, {name}: {explored}")


async def test_run_of_a_front_end_survives_any_two_faults(record_property: Record) -> None:
    """With two, a host that lacks the program takes it over from a dead one, or dies while it takes a single run."""
    explored = await _explore("napping", 2)
    assert {
        "take_run: crash after",
        "take_run: crash before",
        f"host-2: {LACKS}",
    } <= explored.faults
    record_property("explored", f"front end, two faults: {explored}")


@pytest.mark.deep
@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != "napping"])
async def test_runs_of_front_ends_survive_any_two_faults(
    name: str, record_property: Record
) -> None:
    record_property("explored", f"front end, {name}, two faults: {await _explore(name, 2)}")


@pytest.mark.postgres
async def test_run_of_a_front_end_survives_any_fault_on_postgres(
    emptied_postgres: str, record_property: Record
) -> None:
    explored = await _explore("hearing", open_store=emptied(emptied_postgres))
    record_property("explored", f"front end, on Postgres: {explored}")


@pytest.mark.parametrize("name", BUGS)
async def test_explorer_catches(name: str, record_property: Record) -> None:
    bug = BUGS[name]
    with bug.seed(), catching(f"bug {name}", bug.symptom, record_property):
        await _explore(bug.program, bug.faults)
