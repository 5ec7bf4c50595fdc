"""The policies of doubt under every schedule: reconciled effects happen once, those that fail in doubt at most once."""

import pytest
from msgspec.structs import replace

from perdure.core.ids import RunId
from perdure.engine.runs.promise import DurablePromise
from perdure.host.tasks.quarantine import Quarantine
from perdure.testing.explorer import ScheduleFailed
from perdure.testing.workflows import MODES, explore_workflow
from tests.engine.catching import Record, catching
from tests.engine.workflow.doubts import BUGS, PROGRAMS, turn_not_passed_on
from tests.engine.workflow.emptied import emptied


@pytest.mark.parametrize("name", PROGRAMS)
async def test_effects_happen_as_often_as_the_policy_says(
    name: str, record_property: Record
) -> None:
    program = PROGRAMS[name]
    explored = await explore_workflow(program.call, queues=["elsewhere"], check=program.check)
    record_property("explored", f"doubt, {name}: {explored}")


async def test_doubt_resolution_survives_a_second_crash(record_property: Record) -> None:
    program = PROGRAMS["failed once"]
    explored = await explore_workflow(
        program.call, max_faults=2, modes=["stepwise"], check=program.check
    )
    record_property("explored", f"doubt, failed once, two faults: {explored}")


@pytest.fixture
def on_probation(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Modes in which every step that was in doubt waits until the one before it has ended; the first does not wait."""
    admits = Quarantine.admits

    def admits_the_first(self: Quarantine, run_id: RunId, promise: DurablePromise) -> bool:
        is_first = self.is_idle
        is_admitted = admits(self, run_id, promise)
        if is_first and self._pause is not None:
            self._end_pause(self._pause, None)
        return is_admitted

    monkeypatch.setattr(Quarantine, "admits", admits_the_first)
    monkeypatch.setattr("perdure.core.replay.suspicion.SUSPICIOUS", 1)
    modes = {f"{name}, on probation": replace(MODES[name], probation=3600) for name in MODES}
    for name, settings in modes.items():
        monkeypatch.setitem(MODES, name, settings)
    return list(modes)


@pytest.mark.parametrize("name", PROGRAMS)
async def test_effects_happen_as_often_as_the_policy_says_in_quarantine(
    name: str, on_probation: list[str], record_property: Record
) -> None:
    program = PROGRAMS[name]
    explored = await explore_workflow(
        program.call, queues=["elsewhere"], modes=on_probation, check=program.check
    )
    record_property("explored", f"doubt, {name}, on probation: {explored}")


async def test_a_quarantined_step_still_waits_after_a_second_crash(
    on_probation: list[str], record_property: Record
) -> None:
    program = PROGRAMS["reconciled"]
    warm = on_probation[:1]
    explored = await explore_workflow(program.call, max_faults=2, modes=warm, check=program.check)
    record_property("explored", f"doubt, reconciled, on probation, two faults: {explored}")


async def test_explorer_catches_a_quarantine_that_never_admits_the_next_step(
    on_probation: list[str],
) -> None:
    program = PROGRAMS["reconciled"]
    with turn_not_passed_on(), pytest.raises(ScheduleFailed, match="nothing is due"):
        await explore_workflow(program.call, modes=on_probation, check=program.check)


@pytest.mark.postgres
@pytest.mark.parametrize("name", ["reconciled", "reconciled elsewhere", "failed"])
async def test_effects_happen_as_often_as_the_policy_says_on_postgres(
    name: str, emptied_postgres: str, record_property: Record
) -> None:
    program = PROGRAMS[name]
    explored = await explore_workflow(
        program.call,
        queues=["elsewhere"],
        modes=["warm"],
        open_store=emptied(emptied_postgres),
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
    with bug.seed(), catching(f"bug {name}", bug.symptom, record_property):
        await explore_workflow(
            program.call,
            queues=["elsewhere"],
            max_faults=bug.faults,
            modes=[bug.mode],
            check=program.check,
        )
