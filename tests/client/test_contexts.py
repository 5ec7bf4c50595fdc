"""Context variables: what one piece of code sets there is its own affair."""

from contextvars import ContextVar

from perdure import task, workflow
from tests.client.engines import ALWAYS_REPLAY, opened

colour: ContextVar[str] = ContextVar("colour", default="none")


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
        assert await run.result(timeout=10) == ["none"] * 4


async def test_what_a_workflow_sets_is_there_in_its_next_turn_and_nowhere_else() -> None:
    colour.set("mine")
    for settings in (None, ALWAYS_REPLAY):
        async with opened("sqlite:///:memory:", settings=settings) as engine:
            run = await engine.start(painter())
            assert await run.result(timeout=10) == ["none", "violet"]
        assert colour.get() == "mine"
