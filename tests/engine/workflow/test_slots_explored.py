"""Steps that wait for a slot, under every schedule of one fault."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import perdure
from perdure import task, workflow
from perdure.core.ids import StepId
from perdure.engine.runs.warm import WarmRun
from perdure.host.runs import outcomes
from perdure.host.tasks.attempt import Attempt
from perdure.host.tasks.executor import Executor
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


@task(name="slots.step")
async def step(number: int) -> int:
    return number


@workflow(name="slots.chain")
async def chain(number: int) -> int:
    for _ in range(3):
        number += await step(1)
    return number


@workflow(name="slots.two_chains")
async def two_chains() -> tuple[int, int]:
    return await perdure.gather(chain(10), chain(20))


async def explore_chains() -> str:
    """Two runs with one slot between them: one keeps it from its first step to its last, while the other waits."""
    return str(await explore_workflow(two_chains, modes=[ONE_SLOT]))


async def test_runs_that_keep_a_slot_survive_any_one_fault(record_property: Record) -> None:
    record_property("explored", f"two chains with one slot: {await explore_chains()}")


@contextmanager
def kept_slot_forgotten() -> Iterator[None]:
    """A slot that a run has kept and does not need is not given back."""

    def forget(_: Executor, attempt: Attempt) -> None:
        attempt.keeps_slot = False

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Executor, "release_kept", forget)
        yield


async def test_explorer_catches_a_forgotten_slot(record_property: Record) -> None:
    symptom = "nothing is due and nothing runs"
    with kept_slot_forgotten(), catching("bug kept_slot_forgotten", symptom, record_property):
        await explore_chains()


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
