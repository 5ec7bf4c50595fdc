"""Runs a program to its end on a virtual clock, forks it at each of its steps, and compares how they end."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from perdure import Engine, Handle, ProgramCall
from perdure.core.codec import JsonCodec
from perdure.core.journal import events as e
from perdure.core.runs.forking import steps_of
from perdure.testing import simulated
from perdure.testing.checkers import assert_sound
from perdure.testing.probe import Probe
from perdure.testing.virtual_clock import Clock

Script = Callable[[Handle[Any]], Awaitable[None]]

LONGEST_S = 4 * 86_400


class Forked:
    """An engine on a virtual clock, and a run of it that has ended."""

    def __init__(self, engine: Engine, clock: Clock, run: Handle[Any]) -> None:
        self.engine = engine
        self.clock = clock
        self.run = run

    async def ending(self, run: Handle[Any]) -> str:
        """How the run ends: its status, and its result or the class of its error. `stuck` if it waits for ever."""
        result = asyncio.ensure_future(run.result())
        for _ in range(8):
            await self.clock.settle()
            if result.done():
                break
            await self.clock.advance(LONGEST_S / 8)
        if not result.done():
            result.cancel()
            return "stuck"
        try:
            value = await result
        except Exception as error:  # whatever the program raises is its ending
            value = type(error).__name__
        return f"{(await run.status()).value} {value!r}"

    async def steps(self) -> list[str]:
        """The steps of the run: tasks, programs, branches, timers and signals."""
        return list(steps_of([entry.event async for entry in self.run.events(follow=False)]))


@asynccontextmanager
async def forked(call: ProgramCall[Any], script: Script | None = None) -> AsyncIterator[Forked]:
    """A run that has ended. At the end of the block all books must be sound."""
    engine = Engine("sqlite:///:memory:", queues=["elsewhere"])
    async with simulated(engine) as clock:
        run = await engine.start(call)
        if script is not None:
            await script(run)
        found = Forked(engine, clock, run)
        await found.ending(run)
        yield found
        await assert_sound(Probe(engine).store)


async def assert_forks_end_alike(found: Forked) -> int:
    """Fork at every step, with nothing changed. Returns how many forks could be compared."""
    expected, compared = await found.ending(found.run), 0
    for step in ["root", *await found.steps()]:
        preview = await found.run.preview_fork(step)
        if preview.lost_signals:
            continue  # the fork waits for a signal that only its source received
        fork = await found.run.fork(step)
        assert await found.ending(fork) == expected, f"the fork at {step} ends otherwise"
        compared += 1
    return compared


async def assert_set_outcomes_count(found: Forked) -> int:
    """Fork at every task that returned, and set what it returned. Returns how many forks were compared."""
    expected, compared = await found.ending(found.run), 0
    codec = JsonCodec()
    entries = [entry.event async for entry in found.run.events(follow=False)]
    tasks = {
        each.promise_id
        for each in entries
        if isinstance(each, e.InvokeScheduled) and each.place is None
    }
    for event in entries:
        if isinstance(event, e.InvokeCompleted) and event.ok and event.promise_id in tasks:
            if event.payload is None or is_branch(entries, event.promise_id):
                continue
            value = codec.decode(event.payload, object)
            fork = await found.run.fork(event.promise_id, set={event.promise_id: value})
            ending = await found.ending(fork)
            assert ending == expected, (
                f"the fork with the outcome of {event.promise_id} ends otherwise"
            )
            compared += 1
    return compared


def is_branch(entries: list[e.Event], step: str) -> bool:
    return any(
        isinstance(event, e.InvokeScheduled)
        and (event.promise_id, event.kind) == (step, e.InvokeKind.BRANCH)
        for event in entries
    )
