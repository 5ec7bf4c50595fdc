"""What transactional steps write is there once, under every schedule of faults."""

import asyncpg
import pytest

from perdure.testing.workflows import explore_workflow
from tests.engine.catching import Record, catching
from tests.engine.workflow.emptied import emptied
from tests.engine.workflow.transactional import BUGS, MAKE, PROGRAMS


@pytest.mark.parametrize("name", PROGRAMS)
async def test_rows_are_there_once_after_any_one_fault(name: str, record_property: Record) -> None:
    program = PROGRAMS[name]
    explored = await explore_workflow(program.call, script=program.script, check=program.check)
    assert any(fault.startswith("a transaction: ") for fault in explored.faults)
    record_property("explored", f"transactional steps {name}: {explored}")


@pytest.mark.deep
@pytest.mark.parametrize("name", PROGRAMS)
async def test_rows_are_there_once_after_any_two_faults(name: str, record_property: Record) -> None:
    program = PROGRAMS[name]
    explored = await explore_workflow(
        program.call, script=program.script, max_faults=2, modes=["warm"], check=program.check
    )
    record_property("explored", f"transactional steps {name}, two faults: {explored}")


@pytest.mark.postgres
@pytest.mark.parametrize("name", ["in a row", "side by side"])
async def test_rows_are_there_once_after_any_one_fault_on_postgres(
    name: str, emptied_postgres: str, record_property: Record
) -> None:
    program = PROGRAMS[name]
    explored = await explore_workflow(
        program.call,
        script=program.script,
        modes=["warm"],
        open_store=emptied(emptied_postgres, empty_effects),
        check=program.check,
    )
    record_property("explored", f"transactional steps {name} on Postgres: {explored}")


@pytest.mark.parametrize("name", BUGS)
async def test_explorer_catches(name: str, record_property: Record) -> None:
    bug = BUGS[name]
    program = PROGRAMS[bug.program]
    with bug.seed(), catching(f"bug {name}", bug.symptom, record_property):
        await explore_workflow(
            program.call, script=program.script, modes=["warm"], check=lambda _: None
        )


async def empty_effects(url: str) -> None:
    # The role is called like our schema, and would make the table there.
    connection = await asyncpg.connect(url, server_settings={"search_path": "public"})
    try:
        await connection.execute(MAKE)
        await connection.execute("TRUNCATE effects")
    finally:
        await connection.close()
