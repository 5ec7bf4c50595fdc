"""A prover that nothing can fail is worth nothing: each deliberate bug is caught, and its schedule printed."""

import pytest

from perdure.testing.workflows import explore_workflow
from tests.engine.catching import Record, catching
from tests.engine.graph.seeded_bugs import BUGS
from tests.engine.graph.test_explored import CASES, check


@pytest.mark.parametrize("name", BUGS)
async def test_explorer_catches(name: str, record_property: Record) -> None:
    bug = BUGS[name]
    case = CASES[bug.case]
    with bug.seed(), catching(f"graph bug {name}", bug.symptom, record_property):
        await explore_workflow(
            case.call,
            script=case.script,
            queues=["elsewhere"],
            modes=[bug.mode],
            check=check(case),
        )
