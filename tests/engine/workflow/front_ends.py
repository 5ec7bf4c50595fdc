"""Programs that front ends start and send to, for explorers."""

import perdure
from perdure import Handle, Signal, task, workflow
from tests.engine.workflow.programs import Program

word = Signal("front_ends.word", str)


@task(name="front_ends.noted")
async def noted(text: str) -> str:
    return f"noted {text}"


@task(name="front_ends.noted_elsewhere", queue="elsewhere")
async def noted_elsewhere(text: str) -> str:
    return f"noted {text}"


@workflow(name="front_ends.napping")
async def napping() -> str:
    await perdure.sleep(5)
    return "slept"


@workflow(name="front_ends.hearing")
async def hearing() -> list[str]:
    """Sorts what it hears, because the explorer reorders messages."""
    first = await noted("begun")
    heard = sorted([await word.receive(), await word.receive()])
    await perdure.sleep(5)  # what is sent again arrives here
    return [first, *heard, await noted_elsewhere("heard")]


@workflow(name="front_ends.parent")
async def parent() -> str:
    return f"child {await napping()}"


@perdure.graph(name="front_ends.drawn", version="1")
async def drawn() -> str:
    return await noted("it")


async def say(run: Handle[object]) -> None:
    await run.signal(word, "one", id="1")
    await run.signal(word, "two", id="2")


PROGRAMS = {
    "napping": Program(napping, "completed", '"slept"'),
    "hearing": Program(hearing, "completed", '["noted begun","one","two","noted heard"]', say),
    "parent": Program(parent, "completed", '"child slept"'),
    "drawn": Program(drawn, "completed", '"noted it"'),
}
