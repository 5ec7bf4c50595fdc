"""Steps that ran at two deaths of their engine: they begin one after the other, and may wait."""

import asyncio
import time
from collections import Counter

import pytest

import perdure
from perdure import Engine, Handle, InputError, RunCancelled, Settings, task, workflow
from perdure.core.journal import events as e
from tests.client.engines import AT_ONCE, killed, opened, recorded, until

SOON = Settings(probation=0.05)
NEVER = Settings(probation=3600)

begun: Counter[int] = Counter()
patience: dict[int, int] = {}
"""How often each step is cut off."""


@pytest.fixture(autouse=True)
def forget() -> None:
    begun.clear()
    patience.clear()


@task(name="probation.last")
async def last(number: int) -> int:
    begun[number] += 1
    if begun[number] <= patience.get(number, 2):
        await asyncio.sleep(3600)
    return number


@task(name="probation.last_in_a_thread")
def last_in_a_thread(number: int) -> int:
    # Each attempt that is cut off leaves its thread in the end, or the tests would wait for it.
    begun[number] += 1
    time.sleep(0.3 if begun[number] <= 2 else 0)
    return number


@workflow(name="probation.lasting")
async def lasting(number: int) -> int:
    return await last(number)


@workflow(name="probation.lasting_in_threads")
async def lasting_in_threads(count: int) -> list[int]:
    return [*await perdure.gather(*(last_in_a_thread(number) for number in range(count)))]


async def suspects(url: str, count: int) -> list[str]:
    """Runs whose engine died twice while their steps ran."""
    keys = [str(number) for number in range(count)]
    runs: list[Handle[int]] = []
    for life in (1, 2):
        async with killed(url) as engine:
            runs = await engine.start_many([lasting(number) for number in range(count)], keys=keys)
            await until(lambda life=life: begun == dict.fromkeys(range(count), life))  # type: ignore[misc]
    return [run.run_id for run in runs]


async def attempts(engine: Engine, run: Handle[int]) -> int:
    return len(await recorded(engine, run, e.InvokeStarted))


async def test_attempt_that_waits_for_its_quarantine_turn_is_not_in_doubt(shared_url: str) -> None:
    patience.update(dict.fromkeys(range(3), 3))
    runs = await suspects(shared_url, 3)
    async with killed(shared_url, Settings(probation=0.5)):
        await until(lambda: begun.total() == 7)
    patience.clear()
    async with opened(shared_url, SOON) as engine:
        handles = [engine.handle(run) for run in runs]
        assert [await each.result(60) for each in handles] == [0, 1, 2]
        labels = [[p.label for p in await recorded(engine, run, e.Posted)] for run in handles]
    assert sorted(labels) == [["in doubt: retry"] * deaths for deaths in (2, 2, 3)]


async def test_attempt_past_its_probation_does_not_block_others(shared_url: str) -> None:
    patience.update(dict.fromkeys(range(3), 3))
    await suspects(shared_url, 3)
    async with killed(shared_url, SOON):
        await until(lambda: begun == {0: 3, 1: 3, 2: 3})


async def test_quarantine_of_many_attempts_is_short(shared_url: str) -> None:
    many = 60
    patience.update(dict.fromkeys(range(many), 3))
    await suspects(shared_url, many)
    # With whole pauses they would take 30 seconds.
    async with killed(shared_url, Settings(probation=0.5)), asyncio.timeout(25):
        await until(lambda: begun == dict.fromkeys(range(many), 3))


async def test_the_first_turn_comes_when_others_have_lived_for_a_while(shared_url: str) -> None:
    (run,) = await suspects(shared_url, 1)
    at = time.monotonic()
    async with opened(shared_url, Settings(probation=0.5)) as engine:
        other = await engine.start(lasting(7), key="no suspect")
        await until(lambda: begun[7] == 1)
        assert begun[0] == 2
        assert await engine.handle(run).result(60) == 0
        await other.cancel()
    assert time.monotonic() - at > 0.5


async def test_a_stop_and_a_cancel_do_not_wait_for_a_turn(shared_url: str) -> None:
    first, second = await suspects(shared_url, 2)
    async with asyncio.timeout(60), opened(shared_url, NEVER) as engine:
        await engine.handle(first).cancel()
        with pytest.raises(RunCancelled):
            await engine.handle(first).result(60)
        assert await attempts(engine, engine.handle(second)) == 2
    async with opened(shared_url, SOON) as engine:
        assert await engine.handle(second).result(60) == 1
        assert await attempts(engine, engine.handle(first)) == 2


async def test_turns_and_slots_are_both_waited_for(shared_url: str) -> None:
    run_id = ""
    for life in (1, 2):
        async with killed(shared_url, Settings(threads=3)) as engine:
            run_id = (await engine.start(lasting_in_threads(3), key="the one")).run_id
            await until(lambda life=life: begun == dict.fromkeys(range(3), life))  # type: ignore[misc]
    settings = Settings(threads=1, concurrency=1, warm_memory=0, probation=0.05)
    async with opened(shared_url, settings) as engine:
        assert await engine.handle(run_id).result(60) == [0, 1, 2]
    assert begun == {0: 3, 1: 3, 2: 3}


async def test_short_attempt_lets_the_next_begin_at_once(shared_url: str) -> None:
    count = 20
    runs = await suspects(shared_url, count)
    # The first waits for a pause of two seconds. If each did, they would take forty.
    async with opened(shared_url, Settings(probation=4)) as engine, asyncio.timeout(35):
        results = [await engine.handle(run).result(60) for run in runs]
    assert results == list(range(count))


async def test_stops_make_no_suspects(shared_url: str) -> None:
    patience[0] = 3
    run_id = ""
    for life in (1, 2, 3):
        async with opened(shared_url, AT_ONCE) as engine:
            run_id = (await engine.start(lasting(0), key="0")).run_id
            await until(lambda life=life: begun[0] == life)  # type: ignore[misc]
    async with opened(shared_url, NEVER) as engine:
        assert await engine.handle(run_id).result(60) == 0


async def test_without_probation_all_begin_at_once(shared_url: str) -> None:
    patience.update(dict.fromkeys(range(3), 3))
    await suspects(shared_url, 3)
    async with killed(shared_url, Settings(probation=0)):
        await until(lambda: begun == {0: 3, 1: 3, 2: 3})


def test_a_probation_of_less_than_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="probation is -1"):
        Settings(probation=-1)
