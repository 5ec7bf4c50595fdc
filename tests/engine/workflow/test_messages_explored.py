"""Programs that receive prefetched signals, under every schedule of one fault, signalled at every moment."""

import pytest

from perdure.testing.script import After
from perdure.testing.workflows import explore_workflow
from tests.engine.catching import Record, catching
from tests.engine.modes import WITH_FAULTS, explore_one_fault
from tests.engine.workflow.emptied import emptied
from tests.engine.workflow.message_bugs import BUGS
from tests.engine.workflow.messages import PROGRAMS

MOMENTS = range(4)
"""Commits after which a client sends signals: before and after the first results are on their way."""

STEPWISE_MOMENT = 2
"""The moment that `make test` explores step by step, too."""


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("name", PROGRAMS)
async def test_signals_are_received_once_whenever_they_arrive(
    name: str, moment: int, record_property: Record
) -> None:
    program = PROGRAMS[name]
    explored = await explore_one_fault(
        program.call,
        script=After(moment, program.script),
        queues=["elsewhere"],
        modes=[mode for mode in WITH_FAULTS if mode != "stepwise" or moment == STEPWISE_MOMENT],
        check=program.check,
    )
    record_property("explored", f"messages {name}, sent after {moment} commits: {explored}")


@pytest.mark.deep
@pytest.mark.parametrize("moment", [each for each in MOMENTS if each != STEPWISE_MOMENT])
@pytest.mark.parametrize("name", PROGRAMS)
async def test_signals_are_received_once_step_by_step_whenever_they_arrive(
    name: str, moment: int, record_property: Record
) -> None:
    program = PROGRAMS[name]
    explored = await explore_workflow(
        program.call,
        script=After(moment, program.script),
        queues=["elsewhere"],
        modes=["stepwise"],
        check=program.check,
    )
    what = f"messages {name}, sent after {moment} commits, step by step"
    record_property("explored", f"{what}: {explored}")


@pytest.mark.postgres
@pytest.mark.parametrize("name", ["asking", "chaining"])
async def test_signals_are_received_once_on_postgres(
    name: str, emptied_postgres: str, record_property: Record
) -> None:
    program = PROGRAMS[name]
    explored = await explore_workflow(
        program.call,
        script=After(2, program.script),
        queues=["elsewhere"],
        modes=["warm"],
        open_store=emptied(emptied_postgres),
        check=program.check,
    )
    record_property("explored", f"messages {name} on Postgres: {explored}")


@pytest.mark.deep
@pytest.mark.parametrize("name", PROGRAMS)
async def test_signals_are_received_once_with_any_two_faults(
    name: str, record_property: Record
) -> None:
    program = PROGRAMS[name]
    explored = await explore_workflow(
        program.call,
        script=After(2, program.script),
        queues=["elsewhere"],
        max_faults=2,
        check=program.check,
    )
    record_property("explored", f"messages {name}, two faults: {explored}")


@pytest.mark.parametrize("name", BUGS)
async def test_explorer_catches(name: str, record_property: Record) -> None:
    bug = BUGS[name]
    program = PROGRAMS[bug.program]
    with bug.seed(), catching(f"bug {name}", bug.symptom, record_property):
        await explore_workflow(
            program.call,
            script=After(bug.moment, program.script),
            queues=["elsewhere"],
            check=program.check,
        )
