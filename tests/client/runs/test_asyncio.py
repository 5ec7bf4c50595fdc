"""Asyncio in workflows, as an engine runs it: what is logged, what is left behind, what an operator sees."""

import asyncio
import logging
from typing import Any

import pytest

import perdure
from perdure import Engine, RunCancelled, Settings, Signal, task, workflow
from perdure.core.errors import InputError, NeverAwaited

MEMORY = "sqlite:///:memory:"
word = Signal("word", str)


@task
async def settle_bill(order: int) -> str:
    return f"paid {order}"


async def failing() -> None:
    raise LookupError("lost")


@workflow
async def forgets_a_task() -> str:
    lost = asyncio.create_task(failing())
    await settle_bill(1)
    return f"{await settle_bill(2)}, {lost.done()}"


@pytest.mark.parametrize("warm_memory", [0, 1 << 20])
async def test_an_exception_that_is_not_retrieved_is_logged_once(
    warm_memory: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with Engine(MEMORY, settings=Settings(warm_memory=warm_memory)) as engine:
        run = await engine.start(forgets_a_task())
        assert await run.result(timeout=60) == "paid 2, True"
        found = [each for each in caplog.records if each.name == "perdure.asyncio"]
        assert [each.levelno for each in found] == [logging.ERROR]
        assert "never retrieved" in found[0].getMessage()
        assert (await engine.audit()).is_clean


@workflow
async def waits_in_tasks() -> None:
    async with asyncio.TaskGroup() as group:
        for order in range(3):
            group.create_task(hears_and_pays(order))


async def hears_and_pays(order: int) -> None:
    lock = asyncio.Lock()
    async with asyncio.timeout(3600), lock:
        await word.receive()
        await settle_bill(order)


async def test_cancel_and_eviction_of_waiting_tasks_leave_nothing_behind(
    recwarn: pytest.WarningsRecorder, caplog: pytest.LogCaptureFixture
) -> None:
    async with Engine(MEMORY, settings=Settings(warm_memory=0)) as engine:
        run = await engine.start(waits_in_tasks())
        await run.signal(word, "first")
        await run.cancel("enough")
        with pytest.raises(RunCancelled):
            await run.result(timeout=60)
        assert (await engine.audit()).is_clean
        assert (await engine.verify()).is_clean
    assert not [each for each in caplog.records if each.name in ("asyncio", "perdure.asyncio")]
    assert not recwarn.list


@workflow
async def leaves_a_lock_to_a_generator() -> int:
    async def numbers() -> Any:
        try:
            yield 1
        finally:
            await asyncio.sleep(0)

    async for number in numbers():
        return int(number)
    return 0


async def test_a_generator_whose_clean_up_waits_fails_the_run() -> None:
    async with Engine(MEMORY) as engine:
        run = await engine.start(leaves_a_lock_to_a_generator())
        with pytest.raises(NeverAwaited, match="aclosing"):
            await run.result(timeout=60)


@workflow
async def continues_with_a_task() -> None:
    waiting = asyncio.create_task(hears_and_pays(1))
    await settle_bill(1)
    if not waiting.done():
        await perdure.continue_as_new(continues_with_a_task())


async def test_continue_as_new_is_refused_while_a_task_has_not_ended() -> None:
    async with Engine(MEMORY) as engine:
        run = await engine.start(continues_with_a_task())
        with pytest.raises(InputError, match=r"task 'Task-2'.*await or cancel them first"):
            await run.result(timeout=60)


@workflow
async def runs_for_ever_in_callbacks() -> None:
    def again() -> None:
        asyncio.get_running_loop().call_soon(again)

    again()
    await settle_bill(1)


async def test_callbacks_that_schedule_each_other_for_ever_do_not_block_the_host() -> None:
    async with Engine(MEMORY) as engine:
        run = await engine.start(runs_for_ever_in_callbacks())
        await run.result(timeout=60)
        assert (await engine.audit()).is_clean


@workflow
async def leaves_a_generator_that_holds_a_lock() -> str:
    lock = asyncio.Lock()

    async def numbers() -> Any:
        async with lock:
            yield 1

    async def waits() -> str:
        async with lock:
            return await settle_bill(3)

    waiting = []
    async for _ in numbers():
        waiting.append(asyncio.create_task(waits()))
        await asyncio.sleep(0)
        break
    return await waiting[0]


async def test_a_generator_that_is_left_wakes_those_that_wait_for_its_lock() -> None:
    async with Engine(MEMORY) as engine:
        run = await engine.start(leaves_a_generator_that_holds_a_lock())
        assert await run.result(timeout=60) == "paid 3"
