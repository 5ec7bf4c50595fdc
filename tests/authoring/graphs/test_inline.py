"""`perdure.inline` compared with runs of the same graph."""

import asyncio
import gc
from typing import Any

import pytest

import perdure
from perdure import InputError, gather, graph, task
from tests.authoring.graphs.corpus_tasks import corpus_order, corpus_workflow
from tests.client.engines import opened


@task
async def inline_shown(x: float) -> str:
    return str(x)


@task
async def inline_whole(x: int) -> float:
    return x


@task
async def inline_fails(x: int) -> tuple[int, int]:
    if x:
        raise ValueError(f"{x}")
    return x, x


@graph
async def inline_stored(n: int) -> Any:
    pair = await inline_fails(0)
    order = await corpus_order(n)
    return [await inline_shown(n), str(await inline_whole(n)), str(pair), order.name]


@graph
async def inline_all_fail(n: int) -> Any:
    return await gather(inline_fails(n), inline_fails(n + 1), inline_fails(n + 2))


async def test_inline_values_equal_those_of_a_stored_run() -> None:
    inside = await perdure.inline(inline_stored(3))
    async with opened("sqlite:///:memory:") as engine:
        run = await engine.start(inline_stored(3))
        assert await run.result() == inside == ["3.0", "3", "[0, 0]", "order 3"]
    assert await inline_whole(3) == 3
    assert await inline_fails(0) == (0, 0)


async def test_failures_after_the_first_are_not_logged_as_unretrieved() -> None:
    complaints: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    with pytest.raises(ValueError, match="4"):
        await perdure.inline(inline_all_fail(4))
    gc.collect()
    await asyncio.sleep(0)
    assert complaints == []


async def test_only_calls_run_inline() -> None:
    for wrong in (5, inline_stored):
        with pytest.raises(InputError, match="is no call: pass a call of a graph function"):
            await perdure.inline(wrong)  # type: ignore[arg-type]


async def test_only_graphs_run_inline() -> None:
    with pytest.raises(InputError, match="is a workflow"):
        await perdure.inline(corpus_workflow(1))


@task(timeout=0.05)
async def inline_late() -> None:
    await asyncio.sleep(60)


@graph
async def inline_is_late() -> str:
    try:
        await inline_late()
    except TimeoutError as error:
        return str(error)
    return "in time"


async def test_tasks_have_their_timeouts() -> None:
    assert await perdure.inline(inline_is_late()) == ("task 'inline_late' took longer than 0.05 s")
