"""Acts of operators under every schedule of one fault: with a pause at any moment the result is the same."""

import pytest

from perdure.testing.workflows import MODES, Ended, Race, explore_workflow
from tests.engine.catching import Record, catching
from tests.engine.workflow.act_bugs import BUGS
from tests.engine.workflow.acting import CASES
from tests.engine.workflow.emptied import emptied

QUEUES = ["elsewhere"]


def check(name: str) -> Race:
    case = CASES[name]

    def ends(ended: Ended) -> None:
        assert ended.status.value == case.status, str(ended)
        if case.status == "completed" and case.value is not None:
            assert ended.value == case.value

    return Race(ends)


LONG = (
    "chain tuned",
    "paused with its children",
    "stuttering",
    "plainly cancelled while paused",
    "graph skipped",
)
FIRST = [(name, case.moments[0], "warm") for name, case in CASES.items() if name not in LONG]
STEPWISE = [
    (name, CASES[name].moments[-1], "stepwise")
    for name in ("racing", "tuned", "graph tuned", "graph paused")
]
CHOSEN = [*FIRST, *STEPWISE]
DEEP = [
    (name, moment, mode)
    for name, case in CASES.items()
    for moment in case.moments
    for mode in MODES
    if (name, moment, mode) not in CHOSEN
]


async def explore(name: str, moment: int, mode: str, record: Record) -> None:
    case = CASES[name]
    explored = await explore_workflow(
        case.call, script=case.script(moment), queues=QUEUES, modes=[mode], check=check(name)
    )
    record("explored", f"acts {name}, after {moment} commits, {mode}: {explored}")


@pytest.mark.parametrize(("name", "moment", "mode"), CHOSEN)
async def test_run_ends_as_it_should_whenever_the_acts_come(
    name: str, moment: int, mode: str, record_property: Record
) -> None:
    await explore(name, moment, mode, record_property)


@pytest.mark.deep
@pytest.mark.parametrize(("name", "moment", "mode"), DEEP)
async def test_run_ends_as_it_should_at_every_other_moment(
    name: str, moment: int, mode: str, record_property: Record
) -> None:
    await explore(name, moment, mode, record_property)


@pytest.mark.parametrize("name", BUGS)
async def test_explorer_catches(name: str, record_property: Record) -> None:
    bug = BUGS[name]
    with bug.seed(), catching(f"bug {name}", bug.symptom, record_property):
        await explore(bug.case, bug.moment, bug.mode, record_property)


@pytest.mark.postgres
@pytest.mark.parametrize("name", ["racing", pytest.param("graph retried", marks=pytest.mark.deep)])
async def test_run_ends_as_it_should_on_postgres(
    name: str, fresh_postgres: str, record_property: Record
) -> None:
    case = CASES[name]
    explored = await explore_workflow(
        case.call,
        script=case.script(case.moments[0]),
        queues=QUEUES,
        modes=["warm"],
        open_store=emptied(fresh_postgres),
        check=check(name),
    )
    record_property("explored", f"acts {name} on Postgres: {explored}")


@pytest.mark.deep
@pytest.mark.parametrize("name", ["racing", "chained", "graph paused", "cancelled while paused"])
async def test_run_ends_as_it_should_with_any_two_faults(
    name: str, record_property: Record
) -> None:
    case = CASES[name]
    explored = await explore_workflow(
        case.call,
        script=case.script(case.moments[0]),
        queues=QUEUES,
        max_faults=2,
        modes=["warm", "always replayed"],
        check=check(name),
    )
    record_property("explored", f"acts {name}, two faults: {explored}")
