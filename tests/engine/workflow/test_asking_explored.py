"""Workflows that answer requests, under every schedule of one fault: each is answered once, as the run says."""

import pytest

from perdure.testing.script import After
from perdure.testing.workflows import FRONT_ENDS, HINTED, Race, explore_workflow
from tests.engine.catching import Record, catching
from tests.engine.modes import WITH_FAULTS, explore_one_fault
from tests.engine.workflow.asking import PROGRAMS
from tests.engine.workflow.asking_bugs import BUGS
from tests.engine.workflow.emptied import emptied


@pytest.mark.parametrize("moment", [0, 1])
@pytest.mark.parametrize("name", PROGRAMS)
async def test_requests_are_answered_once(name: str, moment: int, record_property: Record) -> None:
    program = PROGRAMS[name]
    explored = await explore_one_fault(
        program.call,
        script=After(moment, program.script),
        modes=WITH_FAULTS if moment == 0 else ["warm"],
        check=Race(program.check),
    )
    record_property(
        "explored",
        f"asking {name}, sent after {moment} commits: {explored.schedules} schedules, {explored.commits} commits",
    )


@pytest.mark.parametrize("mode", [FRONT_ENDS, HINTED])
async def test_requests_of_other_processes_are_answered_once(
    mode: str, record_property: Record
) -> None:
    program = PROGRAMS["answering"]
    explored = await explore_workflow(
        program.call, script=program.script, modes=[mode], check=Race(program.check)
    )
    record_property(
        "explored", f"asking, {mode}: {explored.schedules} schedules, {explored.commits} commits"
    )


@pytest.mark.postgres
async def test_requests_are_answered_once_on_postgres(
    emptied_postgres: str, record_property: Record
) -> None:
    program = PROGRAMS["answering"]
    explored = await explore_workflow(
        program.call,
        script=program.script,
        modes=["warm"],
        open_store=emptied(emptied_postgres),
        check=Race(program.check),
    )
    record_property(
        "explored",
        f"asking on Postgres: {explored.schedules} schedules, {explored.commits} commits",
    )


@pytest.mark.deep
@pytest.mark.parametrize("name", PROGRAMS)
async def test_requests_are_answered_once_with_any_two_faults(
    name: str, record_property: Record
) -> None:
    program = PROGRAMS[name]
    explored = await explore_workflow(
        program.call, script=program.script, max_faults=2, check=Race(program.check)
    )
    record_property(
        "explored",
        f"asking {name}, two faults: {explored.schedules} schedules, {explored.commits} commits",
    )


@pytest.mark.parametrize("name", BUGS)
async def test_explorer_catches(name: str, record_property: Record) -> None:
    bug = BUGS[name]
    program = PROGRAMS[bug.program]
    with bug.seed(), catching(f"bug {name}", bug.symptom, record_property):
        await explore_workflow(
            program.call, script=program.script, modes=["warm"], check=Race(program.check)
        )
