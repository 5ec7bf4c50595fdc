"""A prover that nothing can fail is worth nothing: each deliberate bug is caught, and its schedule printed."""

from collections.abc import Callable

import pytest

from perdure.testing.explorer import ScheduleFailed
from perdure.testing.workflows import explore_workflow
from tests.engine.workflow.programs import PROGRAMS
from tests.engine.workflow.seeded_bugs import BUGS


@pytest.mark.parametrize("name", BUGS)
async def test_explorer_catches(name: str, record_property: Callable[[str, object], None]) -> None:
    bug = BUGS[name]
    program = PROGRAMS[bug.program]
    with bug.seed(), pytest.raises(ScheduleFailed, match=bug.symptom) as caught:
        await explore_workflow(
            program.call,
            script=program.script,
            queues=["elsewhere"],
            modes=["warm"],
            check=lambda _: None,
        )
    schedule = str(caught.value).rpartition("schedule\n")[2]
    assert schedule.strip()
    record_property("explored", f"bug {name}: {' '.join(schedule.split())}")
