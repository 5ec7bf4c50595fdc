"""Workflows that receive prefetched signals, for explorers: they sort payloads, because messages may be reordered."""

from typing import Any

import perdure
from perdure import Handle, Signal, task, workflow
from tests.engine.workflow.programs import Program

word = Signal("messages.word", str)
number = Signal("messages.number", int)


@task(name="messages.fetched", queue="elsewhere")
async def fetched(n: int) -> int:
    return n + 1


@workflow(name="messages.asking")
async def asking() -> list[object]:
    """A queued result, and then everything that was said meanwhile."""
    got = await fetched(1)
    heard = sorted([await word.receive(), await word.receive()])
    return [*heard, await number.receive(timeout=60), await fetched(got)]


@workflow(name="messages.branching")
async def branching() -> list[object]:
    """Several coroutines that ask in one turn, for what comes in an order of its own."""

    async def hear() -> str:
        return await word.receive()

    async def count() -> int:
        return await number.receive()

    got = await fetched(1)
    first, *others = await perdure.gather(hear(), count(), fetched(got), hear())
    *rest, last = others
    return [*sorted([str(first), str(last)]), *rest]


@workflow(name="messages.member")
async def member(n: int) -> int:
    return await fetched(n)


@workflow(name="messages.family")
async def family() -> list[object]:
    """Results of children, and a word after each."""
    members: perdure.JoinSet[int] = perdure.join_set()
    for n in range(2):
        members.submit(member(n))
    results: list[int] = []
    words: list[str] = []
    async for result in members:
        results.append(result)
        words.append(await word.receive())
    return [*sorted(words), *sorted(results), await number.receive()]


@workflow(name="messages.chaining")
async def chaining(turn: int, heard: list[str]) -> list[object]:
    """Two runs: the first leaves to the second the prefetched signals that it did not receive."""
    got = await fetched(turn)
    heard.append(await word.receive())
    if turn == 0:
        return await perdure.continue_as_new(chaining(1, heard))
    return [*sorted(heard), await number.receive(), got]


@workflow(name="messages.racing")
async def racing() -> list[object]:
    """Whichever signal comes first, again and again: the one that loses is still to be had."""
    got = await fetched(1)
    heard: list[object] = [await perdure.first(word.receive(), number.receive()) for _ in range(3)]
    return [*sorted(each for each in heard if isinstance(each, str)), 7 in heard, got]


@workflow(name="messages.tidying")
async def tidying() -> None:
    """Asks for a word when it is cancelled."""
    try:
        await perdure.gather(fetched(1), number.receive())
    finally:
        await word.receive()
        await fetched(2)


async def say(run: Handle[Any]) -> None:
    await run.signal(word, "one", id="1")
    await run.signal(number, 7, id="2")
    await run.signal(word, "two", id="3")


async def cancel_and_say(run: Handle[Any]) -> None:
    await run.cancel("enough")
    await run.signal(word, "one", id="1")


PROGRAMS = {
    "asking": Program(asking, "completed", '["one","two",7,3]', say),
    "branching": Program(branching, "completed", '["one","two",7,3]', say),
    "family": Program(family, "completed", '["one","two",1,2,7]', say),
    "chaining": Program(lambda: chaining(0, []), "completed", '["one","two",7,2]', say),
    "racing": Program(racing, "completed", '["one","two",true,2]', say),
    "tidying": Program(tidying, "cancelled", None, cancel_and_say),
}
