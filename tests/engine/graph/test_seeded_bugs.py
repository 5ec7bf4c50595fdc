"""A prover that nothing can fail is worth nothing: each deliberate bug is caught, and its schedule printed."""

from collections.abc import Callable

import pytest

from perdure.testing.explorer import ScheduleFailed
from perdure.testing.workflows import explore_workflow
from tests.engine.graph.seeded_bugs import BUGS
from tests.engine.graph.test_explored import CASES, check


@pytest.mark.parametrize("name", BUGS)
async def test_explorer_catches(name: str, record_property: Callable[[str, object], None]) -> None:
    bug = BUGS[name]
    case = CASES[bug.case]
    with bug.seed(), pytest.raises(ScheduleFailed, match=bug.symptom) as caught:
        await explore_workflow(
            case.call,
            script=case.script,
            queues=["elsewhere"],
            modes=[bug.mode],
            check=check(case),
        )
    schedule = str(caught.value).rpartition("schedule\n")[2]
    assert schedule.strip()
    record_property("explored", f"graph bug {name}: {' '.join(schedule.split())}")
