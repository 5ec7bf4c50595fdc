"""Every program under every schedule of one fault, and some under two."""

import pytest

from perdure.testing.workflows import explore_workflow
from tests.engine.catching import Record
from tests.engine.modes import explore_one_fault
from tests.engine.workflow.emptied import emptied
from tests.engine.workflow.programs import PROGRAMS


@pytest.mark.parametrize("name", PROGRAMS)
async def test_program_survives_any_one_fault(name: str, record_property: Record) -> None:
    program = PROGRAMS[name]
    explored = await explore_one_fault(
        program.call, script=program.script, queues=["elsewhere"], check=program.check
    )
    record_property("explored", f"workflow {name}: {explored}")


@pytest.mark.postgres
@pytest.mark.parametrize(
    "name", ["gathers", "parent", "patch_arrives", "queued", "streaming", "tidies_up"]
)
async def test_program_survives_any_one_fault_on_postgres(
    name: str, emptied_postgres: str, record_property: Record
) -> None:
    program = PROGRAMS[name]
    explored = await explore_workflow(
        program.call,
        script=program.script,
        queues=["elsewhere"],
        modes=["warm"],
        open_store=emptied(emptied_postgres),
        check=program.check,
    )
    record_property("explored", f"workflow {name} on Postgres: {explored}")


@pytest.mark.deep
@pytest.mark.parametrize("name", PROGRAMS)
async def test_program_survives_any_two_faults(name: str, record_property: Record) -> None:
    program = PROGRAMS[name]
    explored = await explore_workflow(
        program.call,
        script=program.script,
        queues=["elsewhere"],
        max_faults=2,
        modes=["warm", "always replayed"],
        check=program.check,
    )
    record_property("explored", f"workflow {name}, two faults: {explored}")
