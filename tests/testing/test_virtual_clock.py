"""Engines on a virtual clock."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import perdure
from perdure import Engine, Retry, Signal, task, workflow
from perdure.core.errors import EngineClosed
from perdure.testing import Clock, simulated

pytestmark = pytest.mark.asyncio

DAY_S = 86_400

sent: list[datetime] = []


@task(name="simulated.send")
async def send(day: int) -> int:
    sent.append(CLOCK[0].now)
    return day


CLOCK: list[Clock] = []


@workflow(name="simulated.digest")
async def digest() -> None:
    day = 0
    while True:
        await perdure.sleep(DAY_S)
        day = await send(day + 1)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    sent.clear()
    CLOCK.clear()


@pytest.mark.parametrize("kind", ["memory", "file"])
async def test_an_endless_loop_runs_for_months_in_no_time(kind: str, tmp_path: Path) -> None:
    days = 100 if kind == "memory" else 30
    url = "sqlite:///:memory:" if kind == "memory" else f"sqlite:///{tmp_path}/simulated.db"
    engine = Engine(url)
    async with simulated(engine) as clock:
        CLOCK.append(clock)
        began = clock.now
        await engine.start(digest())
        await clock.advance(timedelta(days=days))
        assert len(sent) == days
        assert sent[-1] - began >= timedelta(days=days - 1)
        assert clock.now - began == timedelta(days=days)
        for report in (await engine.audit(), await engine.verify()):
            assert report.is_clean, str(report)


async def test_time_stands_still_until_it_is_moved() -> None:
    engine = Engine("sqlite:///:memory:")
    async with simulated(engine) as clock:
        CLOCK.append(clock)
        await engine.start(digest())
        await clock.advance(DAY_S - 1)
        assert sent == []
        await clock.advance(1)
        assert len(sent) == 1


approval = Signal("simulated.approval", bool)


@workflow(name="simulated.asks")
async def asks() -> str:
    try:
        await approval.receive(timeout=7 * DAY_S)
    except TimeoutError:
        return "nobody answered"
    return "approved"


async def test_a_result_is_awaited_while_time_passes() -> None:
    engine = Engine("sqlite:///:memory:")
    async with simulated(engine) as clock:
        began = clock.now
        run = await engine.start(asks())
        assert await clock.run(run.result()) == "nobody answered"
        assert clock.now - began == timedelta(days=7)


async def test_a_signal_comes_before_the_timeout_if_it_is_sent_before() -> None:
    engine = Engine("sqlite:///:memory:")
    async with simulated(engine) as clock:
        run = await engine.start(asks())
        await clock.advance(6 * DAY_S)
        await run.signal(approval, True)
        assert await clock.run(run.result()) == "approved"


attempts: list[int] = []


@task(name="simulated.flaky", retry=Retry(attempts=3, first=60), queue="simulated")
async def flaky() -> int:
    attempts.append(1)
    if len(attempts) < 3:
        raise ValueError("again")
    return len(attempts)


@workflow(name="simulated.retries")
async def retries() -> int:
    return await flaky()


async def test_retries_of_queued_tasks_wait_in_virtual_time() -> None:
    attempts.clear()
    engine = Engine("sqlite:///:memory:", queues=["simulated"])
    async with simulated(engine) as clock:
        began = clock.now
        run = await engine.start(retries())
        assert await clock.run(run.result()) == 3
        assert clock.now - began > timedelta(seconds=30)


async def test_a_failure_is_raised_as_ever_and_the_engine_closed() -> None:
    engine = Engine("sqlite:///:memory:")
    with pytest.raises(ZeroDivisionError):
        async with simulated(engine):
            raise ZeroDivisionError
    with pytest.raises(EngineClosed):
        await engine.start(asks())


async def test_the_clock_does_not_go_back() -> None:
    async with simulated(Engine("sqlite:///:memory:")) as clock:
        assert clock.now.tzinfo is UTC
        with pytest.raises(perdure.InputError):
            await clock.advance(-1)
