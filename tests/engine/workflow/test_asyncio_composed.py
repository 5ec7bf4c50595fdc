"""Perdure's verbs, asyncio and anyio in one workflow, under faults."""

import asyncio
from collections.abc import Callable
from typing import Any

import anyio
import pytest

import perdure
from perdure import Handle, ProgramCall, Signal, task, workflow
from perdure.engine.workflow.loop.event_loop import WorkflowLoop
from perdure.engine.workflow.loop.tasks import LoopTask
from perdure.testing.explorer import ScheduleFailed
from perdure.testing.script import After
from perdure.testing.workflows import Ended, Race, explore_workflow
from tests.engine.catching import Record
from tests.engine.workflow.acting import pause_all

word = Signal("word", str)


@task
async def doubled_for_tasks(n: int) -> int:
    return 2 * n


@task(queue="elsewhere")
async def elsewhere_for_tasks(n: int) -> int:
    return n + 100


def started(group: asyncio.TaskGroup, given: Any) -> "asyncio.Task[Any]":
    """A task of a call or verb. asyncio's annotations ask for a coroutine."""
    return group.create_task(given)


@workflow
async def mixes_verbs(n: int) -> list[Any]:
    async with asyncio.TaskGroup() as group:
        said = started(group, word.receive())
        slept = started(group, perdure.sleep(1))
        two = started(group, perdure.gather(doubled_for_tasks(n), elsewhere_for_tasks(n)))
    members: perdure.JoinSet[int] = perdure.join_set()
    members.submit(doubled_for_tasks(n + 1))
    return [
        said.result(),
        slept.result(),
        two.result(),
        await asyncio.gather(doubled_for_tasks(3), _first(n), members.next()),
        await perdure.gather(asyncio.create_task(_first(n)), doubled_for_tasks(4)),
    ]


async def _first(n: int) -> int:
    return await perdure.first(perdure.sleep(50), doubled_for_tasks(n)) or 0


@workflow
async def stops_a_step_in_time() -> str:
    try:
        async with asyncio.timeout(5):
            await asyncio.gather(elsewhere_for_ever(), word.receive(), perdure.sleep(60))
    except TimeoutError:
        return "late"
    return "in time"


async def elsewhere_for_ever() -> None:
    try:
        await perdure.sleep(1000)
    finally:
        await doubled_for_tasks(7)


@workflow
async def cleans_up_its_tasks() -> None:
    async def worker(n: int) -> None:
        try:
            await perdure.sleep(1000 + n)
        finally:
            await doubled_for_tasks(n)

    remaining = asyncio.create_task(worker(3))
    async with asyncio.TaskGroup() as group:
        group.create_task(worker(1))
        group.create_task(worker(2))
    await remaining


@workflow
async def counts_up(n: int) -> int:
    async with asyncio.timeout(100):
        async with asyncio.TaskGroup() as group:
            _ = started(group, doubled_for_tasks(n))
        if n < 3:
            await perdure.continue_as_new(counts_up(n + 1))
    return n


@workflow
async def with_anyio() -> list[Any]:
    log: list[Any] = []

    async def naps(n: int) -> None:
        try:
            await anyio.sleep(n)
            log.append(await doubled_for_tasks(n))
        except anyio.get_cancelled_exc_class():
            log.append(-n)
            raise

    async def produces() -> None:
        async with send:
            for n in range(3):
                await send.send(await doubled_for_tasks(n))

    async with anyio.create_task_group() as group:
        group.start_soon(naps, 2)
        group.start_soon(naps, 1)
    with anyio.move_on_after(3) as scope:
        async with anyio.create_task_group() as group:
            for n in (30, 10, 20):
                group.start_soon(naps, n)
    log.append(scope.cancelled_caught)
    send, receive = anyio.create_memory_object_stream[int](1)
    async with anyio.create_task_group() as group, receive:
        group.start_soon(produces)
        log += [n async for n in receive]
    with anyio.CancelScope() as scope:
        scope.cancel()
        with anyio.CancelScope(shield=True):
            log.append(await doubled_for_tasks(8))
        await anyio.sleep(9)
    log.append(scope.cancelled_caught)
    return log


async def says(handle: Handle[Any]) -> None:
    await handle.signal(word, "hello", id="once")


async def cancels(handle: Handle[Any]) -> None:
    await handle.cancel("enough")


class Program:
    def __init__(self, call: Callable[[], ProgramCall[Any]], script: Any, ending: str) -> None:
        self.call = call
        self.script = script
        self.ending = ending


PROGRAMS = {
    "verbs": Program(lambda: mixes_verbs(1), says, "completed"),
    "timeout": Program(stops_a_step_in_time, None, "completed"),
    "cancelled": Program(cleans_up_its_tasks, After(2, cancels), "cancelled"),
    "chain": Program(lambda: counts_up(1), None, "completed"),
    "anyio": Program(with_anyio, None, "completed"),
}


async def explored(name: str, record_property: Record, **options: Any) -> None:
    program = PROGRAMS[name]
    found = await explore_workflow(
        program.call, script=program.script, queues=["elsewhere"], check=program.ending, **options
    )
    record_property("explored", f"asyncio composed, {name}: {found}")


@pytest.mark.parametrize("name", PROGRAMS)
async def test_program_ends_the_same_evicted_or_stepwise(
    name: str, record_property: Record
) -> None:
    await explored(name, record_property, max_faults=0)


@pytest.mark.parametrize("name", ["timeout", "cancelled", "chain"])
async def test_program_survives_any_one_fault(name: str, record_property: Record) -> None:
    await explored(name, record_property, modes=["warm"])


@pytest.mark.deep
@pytest.mark.parametrize("name", PROGRAMS)
async def test_every_program_survives_any_one_fault(name: str, record_property: Record) -> None:
    await explored(name, record_property)


@workflow
async def cancels_a_group(n: int) -> list[int]:
    try:
        async with asyncio.TaskGroup() as group:
            for each in range(n):
                group.create_task(naps_and_cleans(each))
            await doubled_for_tasks(1)
            raise LookupError
    except* LookupError:
        pass
    return [n, await doubled_for_tasks(2)]


async def naps_and_cleans(n: int) -> None:
    try:
        await asyncio.sleep(100 + n)
    finally:
        await doubled_for_tasks(n)


@workflow
async def hears_in_a_task() -> str:
    heard = asyncio.create_task(hears())
    await asyncio.gather(doubled_for_tasks(1), doubled_for_tasks(2))
    return await heard


async def hears() -> str:
    await asyncio.sleep(0)
    await doubled_for_tasks(3)
    return await word.receive()


async def test_explorer_catches_tasks_in_the_order_of_their_addresses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loops: list[Any] = []
    monkeypatch.setattr(LoopTask, "__hash__", lambda task: _as_address(loops, task))
    with pytest.raises(ScheduleFailed, match="diverged"):
        await explore_workflow(lambda: cancels_a_group(3), max_faults=0, modes=["always replayed"])


def _as_address(loops: list[Any], task: LoopTask) -> int:
    """A hash that orders the tasks of every second loop the other way round."""
    loop = task.get_loop()
    if loop not in loops:
        loops.append(loop)
    return task.number if loops.index(loop) % 2 else 1000 - task.number


async def test_explorer_catches_a_new_wait_that_is_not_journaled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    never = property(lambda _: False, lambda *_: None)
    monkeypatch.setattr(WorkflowLoop, "has_new_wait", never, raising=False)
    with pytest.raises(ScheduleFailed, match=r"program_runs|wait_is_satisfied"):
        await explore_workflow(hears_in_a_task, script=After(2, says), modes=["warm"])


async def test_programs_of_the_seeded_bugs_are_sound(record_property: Record) -> None:
    for call, script in ((lambda: cancels_a_group(3), None), (hears_in_a_task, After(2, says))):
        found = await explore_workflow(call, script=script, max_faults=0)
        record_property("explored", f"asyncio without the seeded bugs: {found}")


async def resume(run: Handle[Any]) -> None:
    await run.resume(id="resume", descends=True)


@pytest.mark.parametrize("moment", [1, 2, 4])
@pytest.mark.parametrize("name", ["timeout", "chain", "anyio"])
async def test_program_ends_the_same_with_a_pause_anywhere(name: str, moment: int) -> None:
    program = PROGRAMS[name]
    script = After(moment, pause_all, at_once=True, then=resume)
    await explore_workflow(
        program.call, script=script, queues=["elsewhere"], max_faults=0, check=Race(ended_well)
    )


def ended_well(ended: Ended) -> None:
    assert ended.status == "completed"
