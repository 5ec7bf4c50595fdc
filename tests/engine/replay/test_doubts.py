"""The policies of doubt under every schedule: reconciled effects happen once, those that fail in doubt at most once."""

from collections.abc import Callable

import pytest

from perdure.testing.explorer import ScheduleFailed
from perdure.testing.workflows import explore_workflow
from tests.engine.replay.doubts import BUGS, PROGRAMS
from tests.engine.replay.emptied import emptied

Record = Callable[[str, object], None]


@pytest.mark.parametrize("name", PROGRAMS)
async def test_effects_happen_as_often_as_the_policy_says(
    name: str, record_property: Record
) -> None:
    program = PROGRAMS[name]
    explored = await explore_workflow(program.call, queues=["elsewhere"], check=program.check)
    record_property("explored", f"doubt, {name}: {explored}")


async def test_the_verdict_on_a_step_survives_a_second_crash(record_property: Record) -> None:
    program = PROGRAMS["failed once"]
    explored = await explore_workflow(
        program.call, max_faults=2, modes=["stepwise"], check=program.check
    )
    record_property("explored", f"doubt, failed once, two faults: {explored}")


@pytest.mark.postgres
@pytest.mark.parametrize("name", ["reconciled", "reconciled elsewhere", "failed"])
async def test_effects_happen_as_often_as_the_policy_says_on_postgres(
    name: str, fresh_postgres: str, record_property: Record
) -> None:
    program = PROGRAMS[name]
    explored = await explore_workflow(
        program.call,
        queues=["elsewhere"],
        modes=["warm"],
        open_store=emptied(fresh_postgres),
        check=program.check,
    )
    record_property("explored", f"doubt, {name} on Postgres: {explored}")


@pytest.mark.deep
@pytest.mark.parametrize("name", PROGRAMS)
async def test_effects_happen_as_often_as_the_policy_says_under_two_faults(
    name: str, record_property: Record
) -> None:
    program = PROGRAMS[name]
    explored = await explore_workflow(
        program.call,
        queues=["elsewhere"],
        max_faults=2,
        modes=["warm", "always replayed"],
        check=program.check,
    )
    record_property("explored", f"doubt, {name}, two faults: {explored}")


@pytest.mark.parametrize("name", BUGS)
async def test_explorer_catches(name: str, record_property: Record) -> None:
    bug = BUGS[name]
    program = PROGRAMS[bug.program]
    with bug.seed(), pytest.raises(ScheduleFailed, match=bug.symptom) as caught:
        await explore_workflow(
            program.call,
            queues=["elsewhere"],
            max_faults=bug.faults,
            modes=[bug.mode],
            check=program.check,
        )
    schedule = str(caught.value).rpartition("schedule\n")[2]
    assert schedule.strip()
    record_property("explored", f"bug {name}: {' '.join(schedule.split())}")
