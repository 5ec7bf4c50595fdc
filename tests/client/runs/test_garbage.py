"""Evicted runs are freed at once: no reference cycle waits for the garbage collector."""

import asyncio
import gc
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import pytest

import perdure
from perdure import Engine, GraphProgram, Signal, load_graph, task, workflow
from perdure.host.settings import Settings

pytestmark = pytest.mark.asyncio

GO = Signal("go", int)


@task
async def double_and_leave(number: int) -> int:
    return 2 * number


@workflow
async def leaving_chain(number: int) -> int:
    for _ in range(3):
        number = await double_and_leave(number)
    return number


@workflow
async def leaving_patiently(number: int) -> int:
    await perdure.sleep(0.01)
    one, two = await perdure.gather(double_and_leave(number), double_and_leave(number))
    return one + two + await GO.receive()


@workflow
async def leaving_parent(number: int) -> int:
    return await leaving_chain(number)


GRAPH = """
graph: leaving
input: {number: int}
activities:
  first: {worker: double_and_leave, input: {number: number}, output: {twice: result}}
  second: {worker: double_and_leave, input: {number: twice}, output: {twice: result}}
  done: {output: twice}
transitions:
  - first -> second -> done
"""


async def run_chain(engine: Engine) -> None:
    assert await (await engine.start(leaving_chain(1))).result() == 8


async def run_patient(engine: Engine) -> None:
    run = await engine.start(leaving_patiently(1))
    await run.signal(GO, 3)
    assert await run.result() == 7


async def run_parent(engine: Engine) -> None:
    assert await (await engine.start(leaving_parent(1))).result() == 8


async def run_graph(engine: Engine) -> None:
    assert await (await engine.start(GraphProgram(load_graph(GRAPH))(number=1))).result() == 4


@contextmanager
def garbage() -> Iterator[Counter[str]]:
    """The objects made meanwhile that only the garbage collector frees."""
    found: Counter[str] = Counter()
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield found
        gc.collect()
        found.update(type(each).__qualname__ for each in gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


@pytest.mark.parametrize("warm_memory", [1 << 28, 0])
@pytest.mark.parametrize("run", [run_chain, run_patient, run_parent, run_graph])
async def test_runs_leave_no_garbage(
    run: Callable[[Engine], Awaitable[None]], warm_memory: int
) -> None:
    async with Engine("sqlite:///:memory:", settings=Settings(warm_memory=warm_memory)) as engine:
        await run(engine)  # what is made once and kept is made now
        await asyncio.sleep(0.01)
        with garbage() as found:
            for _ in range(10):
                await run(engine)
            await asyncio.sleep(0.01)
        machines = {name: n for name, n in found.items() if "Machine" in name or "Record" in name}
        assert machines == {}, found
        assert (await engine.audit()).is_clean
