"""Perdure's verbs, asyncio and anyio in one workflow, under faults."""

import asyncio
from collections.abc import Callable
from typing import Any

import anyio
import pytest

import perdure
from perdure import Handle, ProgramCall, Signal, task, workflow
from perdure.testing.script import After
from perdure.testing.workflows import explore_workflow
from tests.engine.catching import Record

word = Signal("word", str)


@task
async def doubled(n: int) -> int:
    return 2 * n


@task(queue="elsewhere")
async def elsewhere(n: int) -> int:
    return n + 100


def started(group: asyncio.TaskGroup, given: Any) -> "asyncio.Task[Any]":
    """A task of a call or verb. asyncio's annotations ask for a coroutine."""
    return group.create_task(given)


@workflow
async def mixes_verbs(n: int) -> list[Any]:
    async with asyncio.TaskGroup() as group:
        said = started(group, word.receive())
        slept = started(group, perdure.sleep(1))
        two = started(group, perdure.gather(doubled(n), elsewhere(n)))
    members: perdure.JoinSet[int] = perdure.join_set()
    members.submit(doubled(n + 1))
    return [
        said.result(),
        slept.result(),
        two.result(),
        await asyncio.gather(doubled(3), _first(n), members.next()),
        await perdure.gather(asyncio.create_task(_first(n)), doubled(4)),
    ]


async def _first(n: int) -> int:
    return await perdure.first(perdure.sleep(50), doubled(n)) or 0


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
        await doubled(7)


@workflow
async def cleans_up_its_tasks() -> None:
    async def worker(n: int) -> None:
        try:
            await perdure.sleep(1000 + n)
        finally:
            await doubled(n)

    remaining = asyncio.create_task(worker(3))
    async with asyncio.TaskGroup() as group:
        group.create_task(worker(1))
        group.create_task(worker(2))
    await remaining


@workflow
async def counts_up(n: int) -> int:
    async with asyncio.timeout(100):
        async with asyncio.TaskGroup() as group:
            _ = started(group, doubled(n))
        if n < 3:
            await perdure.continue_as_new(counts_up(n + 1))
    return n


@workflow
async def with_anyio() -> list[Any]:
    log: list[Any] = []

    async def naps(n: int) -> None:
        try:
            await anyio.sleep(n)
            log.append(await doubled(n))
        except anyio.get_cancelled_exc_class():
            log.append(-n)
            raise

    async def produces() -> None:
        async with send:
            for n in range(3):
                await send.send(await doubled(n))

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
            log.append(await doubled(8))
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
