"""Workflows that answer requests, for explorers. A reply has a random part, which the run's result has too."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

import perdure
from perdure import Cancelled, Handle, ProgramCall, Request, RequestRejected, task, workflow
from perdure.testing.workflows import Ended

price = Request("asking.price", int, str)
word = Request("asking.word", str, str)


class Program(NamedTuple):
    """A program, what clients do to it, and how it must end."""

    call: Callable[[], ProgramCall[Any]]
    script: Callable[[Handle[Any]], Awaitable[None]]
    check: Callable[[Ended], None]


@task(name="asking.looked_up")
async def looked_up(n: int) -> int:
    return 2 * n


async def answered(wanted: str) -> list[object]:
    """Receives a request for a price, and answers it as `wanted` says."""
    ask = await price.receive()
    found = await looked_up(ask.value)
    text = f"{found} {perdure.uuid4().hex}"
    if wanted == "reply":
        await ask.reply(text)
    else:
        await ask.reject(text)
    return [ask.value, text]


@workflow(name="asking.answering")
async def answering() -> list[list[object]]:
    return [await answered("reply"), await answered("reject")]


@workflow(name="asking.last_words")
async def last_words() -> list[list[object]]:
    """The reply and the end of the run are in one commit."""
    ask = await price.receive(timeout=3600)
    text = perdure.uuid4().hex
    await ask.reply(text)
    return [[ask.value, text]]


@workflow(name="asking.next_in_chain")
async def next_in_chain(before: list[list[object]]) -> list[list[object]]:
    """Two runs, each of which answers one request."""
    now = [*before, await answered("reply")]
    return now if before else await perdure.continue_as_new(next_in_chain(now))


@workflow(name="asking.tidying")
async def tidying() -> list[list[object]]:
    """Answers when it is cancelled."""
    ask = await price.receive()
    try:
        await word.receive()
    except Cancelled:
        await ask.reply(perdure.uuid4().hex)
        raise
    return []


async def ask_for(run: Handle[Any], n: int) -> None:
    with suppress(TimeoutError, RequestRejected):
        await run.ask(price, n, id=f"price of {n}", timeout=0)


async def ask_for_two(run: Handle[Any]) -> None:
    """Two requests, the first of which is sent twice."""
    await ask_for(run, 1)
    await ask_for(run, 1)
    await ask_for(run, 2)


async def ask_for_one(run: Handle[Any]) -> None:
    await ask_for(run, 1)
    await ask_for(run, 1)


async def ask_and_cancel(run: Handle[Any]) -> None:
    await ask_for(run, 1)
    await run.cancel("enough")


def answers_are_stored(count: int) -> Callable[[Ended], None]:
    """The run has answered `count` requests, each once, and clients read what the run says it answered."""

    def check(ended: Ended) -> None:
        assert ended.status == "completed"
        values, texts = zip(*ended.value, strict=True)
        assert sorted(values) == list(range(1, count + 1)), f"the run has answered {values}"
        stored = [msgspec.json.decode(each) for each in chunks(ended)]
        # Of a chain the first run alone is looked at.
        assert set(stored) <= set(texts), f"clients read {stored}, and the run answered {texts}"
        assert len(stored) == len(ended.streams) >= 1, f"answers are {stored}"

    return check


def chunks(ended: Ended) -> list[bytes]:
    return [chunk for steps in ended.streams.values() for each in steps.values() for chunk in each]


def all_are_stored(count: int) -> Callable[[Ended], None]:
    some = answers_are_stored(count)

    def check(ended: Ended) -> None:
        some(ended)
        assert len(chunks(ended)) == count, f"answers are {chunks(ended)}"

    return check


def one_is_stored_or_none(ended: Ended) -> None:
    assert ended.status == "cancelled"
    assert len(chunks(ended)) <= 1


PROGRAMS = {
    "answering": Program(answering, ask_for_two, all_are_stored(2)),
    "last words": Program(last_words, ask_for_one, all_are_stored(1)),
    "chain": Program(lambda: next_in_chain([]), ask_for_two, answers_are_stored(2)),
    "tidying": Program(tidying, ask_and_cancel, one_is_stored_or_none),
}
