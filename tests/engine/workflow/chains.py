"""Workflows that continue as new, for explorers. What they hear is sorted: explorers turn the order of messages."""

from collections.abc import Awaitable, Callable
from typing import Any

import perdure
from perdure import Handle, ProgramCall, Signal, task, workflow
from tests.engine.workflow.programs import Program

word = Signal("chains.word", str)


@task(name="chains.spelled")
async def spelled(text: str) -> str:
    return text.upper()


@workflow(name="chains.looping")
async def looping(turn: int, heard: list[str]) -> list[str]:
    """Three runs; two of them hear a word, and each does a step before and after."""
    await spelled("before")
    if turn < 2:
        heard.append(await word.receive())
        return await perdure.continue_as_new(looping(turn + 1, heard))
    return [*sorted(heard), await spelled("end")]


@workflow(name="chains.hoarding")
async def hoarding(turn: int) -> list[str]:
    """Two runs that wait and hear nothing, and one that hears everything."""
    await perdure.sleep(5)
    if turn < 2:
        await perdure.continue_as_new(hoarding(turn + 1))
    return sorted([await word.receive(), await word.receive()])


@workflow(name="chains.draining")
async def draining(turn: int, heard: list[str]) -> list[str]:
    """Two runs that hear one word each, and one that hears whatever is left: that should be nothing."""
    if turn:
        await perdure.sleep(5)
    if turn < 2:
        heard.append(await word.receive())
        return await perdure.continue_as_new(draining(turn + 1, heard))
    while True:
        try:
            heard.append(await word.receive(timeout=1))
        except TimeoutError:
            return sorted(heard)


@workflow(name="chains.spinning")
async def spinning(turn: int) -> int:
    """Runs that never wait."""
    if turn < 3:
        await perdure.continue_as_new(spinning(turn + 1))
    return turn


@workflow(name="chains.endless")
async def endless(turn: int) -> None:
    """Continues as new until it is cancelled, and leaves a step behind each time."""
    try:
        await perdure.sleep(60)
        await perdure.continue_as_new(endless(turn + 1))
    finally:
        await spelled("out")


@workflow(name="chains.parent")
async def parent(wait_s: int) -> list[list[str]]:
    """Speaks to a child that continues as new meanwhile, at once and later, and waits for its result."""
    child = await perdure.start(pacing(0, []))
    child.signal(word, "one")
    await perdure.sleep(wait_s)
    child.signal(word, "two")
    return [await child.result(), await looping_alone(0)]


@workflow(name="chains.pacing")
async def pacing(turn: int, heard: list[str]) -> list[str]:
    await perdure.sleep(10)
    if turn < 2:
        return await perdure.continue_as_new(pacing(turn + 1, heard))
    return sorted([await word.receive(), await word.receive()])


@workflow(name="chains.looping_alone")
async def looping_alone(turn: int) -> list[str]:
    said = await spelled(f"turn {turn}")
    if turn == 0:
        return await perdure.continue_as_new(looping_alone(1))
    return [said]


@workflow(name="chains.advised")
async def advised(left: int, runs: int) -> int:
    """Continues whenever that is suggested; returns the number of runs."""
    while left and not perdure.info().continue_suggested:
        await spelled(str(left))
        left -= 1
    if left:
        await perdure.continue_as_new(advised(left, runs + 1))
    return runs + 1


async def say_twice(run: Handle[Any]) -> None:
    await run.signal(word, "one", id="1")
    await run.signal(word, "two", id="2")


async def cancel(run: Handle[Any]) -> None:
    await run.cancel("enough")


Script = Callable[[Handle[Any]], Awaitable[None]]


def _program(
    call: Callable[[], ProgramCall[Any]], result: str, script: Script | None = None
) -> Program:
    return Program(call, "completed", result, *(() if script is None else (script,)))


PROGRAMS = {
    "looping": _program(lambda: looping(0, []), '["one","two","END"]', say_twice),
    "hoarding": _program(lambda: hoarding(0), '["one","two"]', say_twice),
    "draining": _program(lambda: draining(0, []), '["one","two"]', say_twice),
    "spinning": _program(lambda: spinning(0), "3"),
    "endless": Program(lambda: endless(0), "cancelled", None, cancel),
    "advised": _program(lambda: advised(5, 0), "3"),
    "parent": _program(lambda: parent(15), '[["one","two"],["TURN 1"]]'),
}
