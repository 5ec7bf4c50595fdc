"""Hints that are lost, late or doubled, or come when their host is dead, change nothing."""

import pytest

import perdure
from perdure import Handle, Signal, task, workflow
from perdure.testing.script import After
from perdure.testing.workflows import HINTED, explore_workflow
from tests.engine.catching import Record

go = Signal("go", int)
then = Signal("then", int)


@task(name="hinted.far", queue="elsewhere")
async def far(number: int) -> int:
    return number * 10


@workflow(name="hinted.parent")
async def parent() -> list[int]:
    first = await go.receive()
    answers = await perdure.gather(far(first), late_child(first))
    return [first, await then.receive(), *answers]


@workflow(name="hinted.late_child")
async def late_child(number: int) -> int:
    await perdure.sleep(60)
    return await far(number)


async def speak(run: Handle[list[int]]) -> None:
    await run.signal(go, 1)
    await run.signal(then, 2)


async def cancel(run: Handle[list[int]]) -> None:
    await run.signal(go, 1)
    await run.cancel("enough")


async def test_work_signals_and_children_survive_faults_of_hints(record_property: Record) -> None:
    explored = await explore_workflow(
        parent, script=After(2, speak, at_once=True), queues=["elsewhere"], modes=[HINTED]
    )
    for fault in ("is lost", "arrives late", "arrives twice"):
        assert any(each.startswith("hint of ") and each.endswith(fault) for each in explored.faults)
    record_property("explored", f"hints: {explored}")


async def test_a_cancel_survives_faults_of_hints(record_property: Record) -> None:
    explored = await explore_workflow(
        parent,
        script=After(2, cancel, at_once=True),
        queues=["elsewhere"],
        modes=[HINTED],
        check="cancelled",
    )
    record_property("explored", f"hints, cancelled: {explored}")


@pytest.mark.deep
async def test_two_faults_of_hints_and_hosts(record_property: Record) -> None:
    explored = await explore_workflow(
        parent,
        script=After(2, speak, at_once=True),
        queues=["elsewhere"],
        modes=[HINTED],
        max_faults=2,
    )
    record_property("explored", f"hints, two faults: {explored}")
