"""Engines that stop while tasks run: the tasks are in doubt, but are not taken for what kills the engine."""

import asyncio
import threading

import pytest

import perdure
from perdure import NotDone, Retry, Settings, StepInDoubt, task, workflow
from perdure.core.journal import events as e
from perdure.core.replay.doubt import MOST_DOUBTS
from tests.client.engines import AT_ONCE, killed, opened, recorded, until

pytestmark = pytest.mark.asyncio

begun: list[int] = []
asked: list[str] = []


@pytest.fixture(autouse=True)
def forget() -> None:
    begun.clear()
    asked.clear()


async def begin(patience: int) -> int:
    begun.append(perdure.info().attempt)
    if len(begun) <= patience:
        await asyncio.sleep(3600)
    return len(begun)


def find(key: str) -> int:
    asked.append(key)
    raise NotDone


lasts = task(name="stopping.lasts")(begin)


@task(name="stopping.asks", on_doubt=find)
async def asks() -> int:
    return await begin(2)


@task(name="stopping.fails", on_doubt="fail")
async def fails() -> int:
    return await begin(1)


@task(name="stopping.retries", retry=Retry(attempts=2, first=0))
async def retries() -> int:
    await begin(3)
    raise ValueError(len(begun))


release = threading.Event()


@task(name="stopping.threads")
def threads() -> int:
    begun.append(perdure.info().attempt)
    release.wait(30)
    return len(begun)


@workflow(name="stopping.waiting")
async def waiting(which: str, patience: int = 0) -> int:
    calls = {"asks": asks, "fails": fails, "retries": retries, "threads": threads}
    if which == "lasts":
        return await lasts(patience)
    return await calls[which]()


async def stop_often(url: str, which: str, times: int, patience: int = 0) -> str:
    """A run whose task began so often, and as often its engine was stopped."""
    run_id = ""
    for count in range(1, times + 1):
        async with opened(url, AT_ONCE) as engine:
            if not run_id:
                run_id = (await engine.start(waiting(which, patience))).run_id
            await until(lambda count=count: len(begun) == count)  # type: ignore[misc]
    return run_id


@pytest.mark.parametrize("settings", [None, Settings(max_doubts=0)])
async def test_stops_do_not_count_as_deaths(shared_url: str, settings: Settings | None) -> None:
    run_id = await stop_often(shared_url, "lasts", 6, patience=6)
    async with opened(shared_url, settings) as engine:
        run = engine.handle(run_id)
        assert await run.result(10) == 7
        labels = [each.label for each in await recorded(engine, run, e.Posted)]
        assert labels == ["stopped: retry"] * 6
    assert begun == [1, 2, 3, 4, 5, 6, 7]


async def test_deaths_count_between_stops(shared_url: str) -> None:
    limited = Settings(max_doubts=1)
    run_id = await stop_often(shared_url, "lasts", 2, patience=9)
    for count in (3, 4):
        async with killed(shared_url, limited):
            await until(lambda count=count: len(begun) == count)  # type: ignore[misc]
    async with opened(shared_url, limited) as engine:
        with pytest.raises(StepInDoubt, match="was under way 2 times when its host died"):
            await engine.handle(run_id).result(10)
    assert begun == [1, 2, 3, 4]


async def test_who_was_stopped_is_asked_what_happened(shared_url: str) -> None:
    run_id = await stop_often(shared_url, "asks", 2)
    async with opened(shared_url) as engine:
        run = engine.handle(run_id)
        assert await run.result(10) == 3
        labels = [each.label for each in await recorded(engine, run, e.Posted)]
        assert labels == ["stopped: reconcile"] * 2
    assert len(asked) == 2


async def test_a_step_that_is_not_to_be_repeated_is_not(shared_url: str) -> None:
    run_id = await stop_often(shared_url, "fails", 1)
    async with opened(shared_url) as engine:
        with pytest.raises(StepInDoubt):
            await engine.handle(run_id).result(10)
    assert begun == [1]


async def test_a_stop_does_not_use_up_a_retry(shared_url: str) -> None:
    run_id = await stop_often(shared_url, "retries", 3)
    async with opened(shared_url) as engine:
        with pytest.raises(ValueError, match="5"):
            await engine.handle(run_id).result(10)
    assert begun == [1, 2, 3, 4, 5]


async def test_a_thread_that_does_not_end_counts(
    shared_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.host.host.LONGEST_CLEAN_UP_S", 0.1)
    release.clear()
    run_id = await stop_often(shared_url, "threads", 1)
    release.set()
    async with opened(shared_url) as engine:
        run = engine.handle(run_id)
        assert await run.result(10) == 2
        labels = [each.label for each in await recorded(engine, run, e.Posted)]
        assert labels == ["in doubt: retry"]


async def test_the_digits_of_a_step_do_not_run_out(
    shared_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.engine.replay.facts.MOST_DOUBTS", 3)
    monkeypatch.setattr("perdure.core.replay.doubt.MOST_DOUBTS", 3)
    run_id = await stop_often(shared_url, "lasts", 3, patience=9)
    async with opened(shared_url) as engine:
        run = engine.handle(run_id)
        with pytest.raises(StepInDoubt):
            await run.result(10)
        labels = [each.label for each in await recorded(engine, run, e.Posted)]
        assert labels == ["stopped: retry"] * 2 + ["in doubt: fail"]
    assert MOST_DOUBTS > 3
