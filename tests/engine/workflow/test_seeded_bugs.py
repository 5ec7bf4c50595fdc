"""A prover that nothing can fail is worth nothing: each deliberate bug is caught, and its schedule printed."""

import pytest

from perdure.testing.workflows import explore_workflow
from tests.engine.catching import Record, catching
from tests.engine.workflow.programs import PROGRAMS
from tests.engine.workflow.seeded_bugs import BUGS


@pytest.mark.parametrize("name", BUGS)
async def test_explorer_catches(name: str, record_property: Record) -> None:
    bug = BUGS[name]
    program = PROGRAMS[bug.program]
    with bug.seed(), catching(f"bug {name}", bug.symptom, record_property):
        await explore_workflow(
            program.call,
            script=program.script,
            queues=["elsewhere"],
            modes=["warm"],
            check=lambda _: None,
        )
