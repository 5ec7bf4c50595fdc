"""Steps that wait for a slot, under every schedule of one fault."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from perdure.core.ids import StepId
from perdure.engine.runs.warm import WarmRun
from perdure.host.runs import outcomes
from perdure.testing.workflows import ONE_SLOT, explore_workflow
from tests.engine.catching import Record, catching
from tests.engine.workflow.programs import PROGRAMS


async def explore(name: str) -> str:
    program = PROGRAMS[name]
    explored = await explore_workflow(
        program.call,
        script=program.script,
        queues=["elsewhere"],
        modes=[ONE_SLOT],
        check=program.check,
    )
    return str(explored)


@pytest.mark.parametrize("name", ["gathers", "parent", "retries", "tidies_up"])
async def test_program_survives_any_one_fault_with_one_slot(
    name: str, record_property: Record
) -> None:
    record_property("explored", f"workflow {name} with one slot: {await explore(name)}")


@contextmanager
def granted_step_forgotten() -> Iterator[None]:
    """A turn drops the steps that have got slots."""

    def forget(steps: list[StepId], run: WarmRun) -> None: ...

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outcomes, "want", forget)
        yield


async def test_explorer_catches_a_forgotten_grant(record_property: Record) -> None:
    symptom = "nothing is due and nothing runs"
    with granted_step_forgotten(), catching("bug granted_step_forgotten", symptom, record_property):
        await explore("gathers")
