"""Context variables: each branch, task and run has its own values."""

import asyncio
from contextvars import ContextVar
from decimal import Decimal, localcontext

import perdure
from perdure import Signal, task, workflow
from perdure.core.journal.events import InvokeStarted
from tests.client.engines import ALWAYS_REPLAY, opened, until_recorded

colour: ContextVar[str] = ContextVar("colour", default="none")
never = Signal("contexts never", int)


@task
async def paint(value: str) -> str:
    before = colour.get()
    colour.set(value)
    return before


@task
def paint_in_a_thread(value: str) -> str:
    before = colour.get()
    colour.set(value)
    return before


@workflow
async def painters() -> list[str]:
    return [
        await paint("red"),
        await paint("green"),
        await paint_in_a_thread("blue"),
        await paint("black"),
    ]


@workflow
async def painter() -> list[str]:
    seen = [colour.get()]
    colour.set("violet")
    await paint("red")
    return [*seen, colour.get()]


async def test_what_a_task_sets_is_not_seen_by_the_next() -> None:
    async with opened("sqlite:///:memory:") as engine:
        run = await engine.start(painters())
        assert await run.result(timeout=60) == ["none"] * 4


async def test_what_a_workflow_sets_is_there_in_its_next_turn_and_nowhere_else() -> None:
    colour.set("mine")
    for settings in (None, ALWAYS_REPLAY):
        async with opened("sqlite:///:memory:", settings=settings) as engine:
            run = await engine.start(painter())
            assert await run.result(timeout=60) == ["none", "violet"]
        assert colour.get() == "mine"


@task
async def idle(seconds: float) -> None:
    await asyncio.sleep(seconds)


async def third(digits: int, seconds: float) -> str:
    with localcontext() as context:
        context.prec = digits
        await idle(seconds)
        return str(Decimal(1) / 3)


@workflow
async def dividing() -> tuple[list[str], str]:
    both = await perdure.gather(third(4, 0.02), third(8, 0.04))
    return list(both), str(Decimal(1) / 3)


async def inner(seen: list[str], name: str) -> None:
    seen.append(colour.get())
    colour.set(f"{colour.get()}.{name}")
    await idle(0.01)
    seen.append(colour.get())


async def outer(seen: list[str], name: str) -> None:
    await inner(seen, name)
    await perdure.gather(inner(seen, "a"), inner(seen, "b"))
    seen.append(colour.get())


@workflow
async def nesting() -> list[str]:
    seen: list[str] = []
    colour.set("root")
    branches = perdure.join_set()
    branches.submit(outer(seen, "one"))
    colour.set("later")
    async for _ in branches:
        pass
    return [*seen, colour.get()]


closed: list[str] = []


async def guarded(name: str) -> None:
    token = colour.set(name)
    try:
        await never.receive()
    finally:
        closed.append(colour.get())
        colour.reset(token)
        closed.append(colour.get())


@workflow(lint="off")
async def guarding() -> str:
    colour.set("root")
    await perdure.first(idle(0.01), guarded("cancelled"))
    await perdure.gather(guarded("left"))
    return "unreachable"


async def test_branches_have_contexts_of_their_own() -> None:
    for settings in (None, ALWAYS_REPLAY):
        async with opened("sqlite:///:memory:", settings=settings) as engine:
            run = await engine.start(dividing())
            assert await run.result(timeout=60) == (
                ["0.3333", "0.33333333"],
                "0.3333333333333333333333333333",
            )


async def test_branch_begins_with_the_context_of_what_began_it() -> None:
    for settings in (None, ALWAYS_REPLAY):
        async with opened("sqlite:///:memory:", settings=settings) as engine:
            run = await engine.start(nesting())
            assert await run.result(timeout=60) == [
                *("root", "root.one"),
                *("root.one", "root.one"),
                *("root.one.a", "root.one.b"),
                *("root.one", "later"),
            ]


async def test_branch_is_cancelled_and_closed_in_its_own_context() -> None:
    closed.clear()
    async with opened("sqlite:///:memory:") as engine:
        run = await engine.start(guarding())
        await until_recorded(engine, run, InvokeStarted, 3)
        assert closed == ["cancelled", "root"]
    assert closed == ["cancelled", "root", "left", "root"]
