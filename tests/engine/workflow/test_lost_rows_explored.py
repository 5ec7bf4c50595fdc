"""Runs whose timers, retries, work or children's results are lost when a host dies: the next host writes them again.

Under two faults the host that does so dies, too: just before or just after each of its commits.
"""

import pytest

from perdure.testing.explorer import memory_store
from perdure.testing.workflows import explore_workflow
from tests.engine.catching import Record, catching
from tests.engine.workflow.emptied import emptied
from tests.engine.workflow.lost_rows import (
    BUGS,
    CASES,
    LOSSES,
    PROGRAMS,
    losing,
    repaired_row,
    repairs_allowed,
)


async def _explore(name: str, loss: str, max_faults: int) -> str:
    program, _ = PROGRAMS[name]
    with repairs_allowed() as repaired:
        explored = await explore_workflow(
            program.call,
            queues=["elsewhere"],
            max_faults=max_faults,
            modes=["warm"],
            open_store=losing(LOSSES[loss], memory_store),
            check=program.check,
        )
    assert repaired
    if loss == "deleted" or name == "queueing":
        assert repaired_row(name, loss) in repaired
    return f"rows of {name} {loss}: {explored}"


@pytest.mark.parametrize(("name", "loss"), CASES)
async def test_lost_rows_are_put_back_when_a_host_dies(
    name: str, loss: str, record_property: Record
) -> None:
    record_property("explored", await _explore(name, loss, 1))


async def test_lost_rows_are_put_back_although_the_host_dies_meanwhile(
    record_property: Record,
) -> None:
    record_property("explored", await _explore("sleeping", "deleted", 2))


@pytest.mark.deep
@pytest.mark.parametrize(("name", "loss"), CASES)
async def test_lost_rows_are_put_back_under_any_two_faults(
    name: str, loss: str, record_property: Record
) -> None:
    record_property("explored", await _explore(name, loss, 2))


@pytest.mark.postgres
@pytest.mark.parametrize("name", PROGRAMS)
async def test_lost_rows_are_put_back_on_postgres(
    name: str, emptied_postgres: str, record_property: Record
) -> None:
    program, row = PROGRAMS[name]
    with repairs_allowed() as repaired:
        explored = await explore_workflow(
            program.call,
            queues=["elsewhere"],
            modes=["warm"],
            open_store=losing(LOSSES["deleted"], emptied(emptied_postgres)),
            check=program.check,
        )
    assert row in repaired
    record_property("explored", f"rows of {name} deleted, on Postgres: {explored}")


@pytest.mark.parametrize("name", BUGS)
async def test_explorer_catches(name: str, record_property: Record) -> None:
    bug = BUGS[name]
    program, _ = PROGRAMS[bug.program]
    with (
        repairs_allowed(),
        bug.seed(),
        catching(f"bug {name}", bug.symptom, record_property),
    ):
        await explore_workflow(
            program.call,
            queues=["elsewhere"],
            max_faults=bug.faults,
            modes=["warm"],
            open_store=losing(LOSSES[bug.loss], memory_store),
            check=program.check,
        )
