"""Chains under every schedule of one fault, spoken to at every moment of their lives."""

import pytest

from perdure.engine.runs.size import JournalSize
from perdure.testing.script import After
from perdure.testing.workflows import explore_workflow
from tests.engine.catching import Record, catching
from tests.engine.modes import WITH_FAULTS, explore_one_fault
from tests.engine.workflow.chain_bugs import BUGS
from tests.engine.workflow.chains import PROGRAMS
from tests.engine.workflow.emptied import emptied

MOMENTS = range(0, 9, 2)
"""Commits after which a client sends a signal: the longest of these programs takes about ten."""


STEPWISE_MOMENT = 4
"""The moment that `make test` explores step by step, too."""

LISTENING = ["looping", "hoarding", "draining", "endless"]


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("name", LISTENING)
async def test_chain_receives_signals_sent_at_any_moment(
    name: str, moment: int, record_property: Record
) -> None:
    program = PROGRAMS[name]
    explored = await explore_one_fault(
        program.call,
        script=After(moment, program.script),
        modes=[mode for mode in WITH_FAULTS if mode != "stepwise" or moment == STEPWISE_MOMENT],
        check=program.check,
    )
    record_property("explored", f"chain {name}, spoken to after {moment} commits: {explored}")


@pytest.mark.deep
@pytest.mark.parametrize("moment", [each for each in MOMENTS if each != STEPWISE_MOMENT])
@pytest.mark.parametrize("name", LISTENING)
async def test_chain_receives_signals_sent_at_any_moment_step_by_step(
    name: str, moment: int, record_property: Record
) -> None:
    program = PROGRAMS[name]
    explored = await explore_workflow(
        program.call,
        script=After(moment, program.script),
        modes=["stepwise"],
        check=program.check,
    )
    what = f"chain {name}, spoken to after {moment} commits, step by step"
    record_property("explored", f"{what}: {explored}")


@pytest.mark.parametrize("name", ["spinning", "parent"])
async def test_chain_survives_any_one_fault(name: str, record_property: Record) -> None:
    program = PROGRAMS[name]
    explored = await explore_one_fault(program.call, check=program.check)
    record_property("explored", f"chain {name}: {explored}")


async def test_chain_that_continues_when_advised_survives_any_one_fault(
    record_property: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(JournalSize, "is_long", property(lambda size: size.steps >= 2))
    explored = await explore_one_fault(PROGRAMS["advised"].call, check=PROGRAMS["advised"].check)
    record_property("explored", f"chain advised: {explored}")


@pytest.mark.postgres
@pytest.mark.parametrize("name", ["looping", "endless"])
async def test_chain_survives_any_one_fault_on_postgres(
    name: str, emptied_postgres: str, record_property: Record
) -> None:
    program = PROGRAMS[name]
    explored = await explore_workflow(
        program.call,
        script=After(4, program.script),
        modes=["warm"],
        open_store=emptied(emptied_postgres),
        check=program.check,
    )
    record_property("explored", f"chain {name} on Postgres: {explored}")


@pytest.mark.deep
@pytest.mark.parametrize("name", PROGRAMS)
async def test_chain_survives_any_two_faults(name: str, record_property: Record) -> None:
    program = PROGRAMS[name]
    explored = await explore_workflow(
        program.call,
        script=After(4, program.script),
        max_faults=2,
        modes=["warm", "always replayed"],
        check=program.check,
    )
    record_property("explored", f"chain {name}, two faults: {explored}")


@pytest.mark.parametrize("name", BUGS)
async def test_explorer_catches(name: str, record_property: Record) -> None:
    bug = BUGS[name]
    program = PROGRAMS[bug.program]
    with bug.seed(), catching(f"bug {name}", bug.symptom, record_property):
        await explore_workflow(
            program.call, script=After(bug.moment, program.script), check=program.check
        )
