"""Engines that stop while tasks run: the tasks are in doubt, but not suspected of killing the engine."""

import asyncio
import threading

import pytest

import perdure
from perdure import NotDone, Retry, Settings, StepInDoubt, task, workflow
from perdure.core.journal import events as e
from perdure.core.replay.doubt import MOST_DOUBTS, doubted_steps
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
lasts_there = task(name="stopping.lasts_there", queue="stopping")(begin)


@task(name="stopping.asks", on_doubt=find)
async def asks() -> int:
    return await begin(2)


@task(name="stopping.asks_there", on_doubt=find, queue="stopping")
async def asks_there() -> int:
    return await begin(2)


@task(name="stopping.fails", on_doubt="fail")
async def fails() -> int:
    return await begin(1)


@task(name="stopping.fails_there", on_doubt="fail", queue="stopping")
async def fails_there() -> int:
    return await begin(1)


@task(name="stopping.retries", retry=Retry(attempts=2, first=0))
async def retries() -> int:
    await begin(3)
    raise ValueError(len(begun))


@task(name="stopping.retries_there", retry=Retry(attempts=2, first=0), queue="stopping")
async def retries_there() -> int:
    begun.append(perdure.info().attempt)
    if len(begun) == 4:
        raise ValueError(len(begun))
    if len(begun) < 6:
        await asyncio.sleep(3600)
    return len(begun)


release = threading.Event()


@task(name="stopping.threads")
def threads() -> int:
    begun.append(perdure.info().attempt)
    release.wait(30)
    return len(begun)


@task(name="stopping.threads_there", queue="stopping")
def threads_there() -> int:
    begun.append(perdure.info().attempt)
    release.wait(30)
    return len(begun)


PATIENT = {"lasts": lasts, "lasts_there": lasts_there}
TASKS = {
    **{"asks": asks, "fails": fails, "retries": retries, "threads": threads},
    **{"asks_there": asks_there, "fails_there": fails_there},
    **{"retries_there": retries_there, "threads_there": threads_there},
}


@workflow(name="stopping.waiting")
async def waiting(which: str, patience: int = 0) -> int:
    if which in PATIENT:
        return await PATIENT[which](patience)
    return await TASKS[which]()


async def stop_often(url: str, which: str, times: int, patience: int = 0) -> str:
    """A run whose task was begun and stopped by its engine that many times."""
    run_id = ""
    for count in range(1, times + 1):
        async with opened(url, AT_ONCE, ("stopping",)) as engine:
            if not run_id:
                run_id = (await engine.start(waiting(which, patience))).run_id
            await until(lambda count=count: len(begun) == count)  # type: ignore[misc]
    return run_id


@pytest.mark.parametrize("settings", [None, Settings(max_doubts=0)])
async def test_stops_do_not_count_as_deaths(shared_url: str, settings: Settings | None) -> None:
    run_id = await stop_often(shared_url, "lasts", 6, patience=6)
    async with opened(shared_url, settings) as engine:
        run = engine.handle(run_id)
        assert await run.result(60) == 7
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
            await engine.handle(run_id).result(60)
    assert begun == [1, 2, 3, 4]


async def test_stopped_step_is_reconciled(shared_url: str) -> None:
    run_id = await stop_often(shared_url, "asks", 2)
    async with opened(shared_url) as engine:
        run = engine.handle(run_id)
        assert await run.result(60) == 3
        labels = [each.label for each in await recorded(engine, run, e.Posted)]
        assert labels == ["stopped: reconcile"] * 2
    assert len(asked) == 2


async def test_step_that_must_not_be_repeated_is_not(shared_url: str) -> None:
    run_id = await stop_often(shared_url, "fails", 1)
    async with opened(shared_url) as engine:
        with pytest.raises(StepInDoubt):
            await engine.handle(run_id).result(60)
    assert begun == [1]


async def test_a_stop_does_not_use_up_a_retry(shared_url: str) -> None:
    run_id = await stop_often(shared_url, "retries", 3)
    async with opened(shared_url) as engine:
        with pytest.raises(ValueError, match="5"):
            await engine.handle(run_id).result(60)
    assert begun == [1, 2, 3, 4, 5]


async def test_a_thread_that_does_not_end_counts(
    shared_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.host.runs.dispatcher.LONGEST_CLEAN_UP_S", 0.1)
    release.clear()
    run_id = await stop_often(shared_url, "threads", 1)
    release.set()
    async with opened(shared_url) as engine:
        run = engine.handle(run_id)
        assert await run.result(60) == 2
        labels = [each.label for each in await recorded(engine, run, e.Posted)]
        assert labels == ["in doubt: retry"]


@pytest.mark.parametrize("settings", [None, Settings(max_doubts=0)])
async def test_stops_of_a_queues_host_do_not_count_as_deaths(
    shared_url: str, settings: Settings | None
) -> None:
    run_id = await stop_often(shared_url, "lasts_there", 6, patience=6)
    async with opened(shared_url, settings, ("stopping",)) as engine:
        run = engine.handle(run_id)
        assert await run.result(60) == 7
        (posted,) = await recorded(engine, run, e.Posted)
        assert (posted.label, doubted_steps(posted)) == ("stopped: retry", [("root.0", 6)])
    assert begun == [1] * 7


async def test_deaths_of_a_queues_host_count_between_stops_and_over_attempts(
    shared_url: str,
) -> None:
    limited = Settings(max_doubts=1)
    run_id = await stop_often(shared_url, "retries_there", 3)
    async with killed(shared_url, limited, ("stopping",)):
        await until(lambda: len(begun) == 5)
    async with opened(shared_url, limited, ("stopping",)) as engine:
        run = engine.handle(run_id)
        assert await run.result(60) == 6
        posted = [
            (each.label, doubted_steps(each)) for each in await recorded(engine, run, e.Posted)
        ]
        assert posted == [("stopped: retry", [("root.0", 3)]), ("in doubt: retry", [("root.0", 1)])]
    assert begun == [1, 1, 1, 1, 2, 2]


async def test_queued_work_that_killed_its_host_too_often_fails_in_spite_of_stops(
    shared_url: str,
) -> None:
    limited = Settings(max_doubts=1)
    run_id = await stop_often(shared_url, "lasts_there", 2, patience=9)
    for count in (3, 4):
        async with killed(shared_url, limited, ("stopping",)):
            await until(lambda count=count: len(begun) == count)  # type: ignore[misc]
    async with opened(shared_url, limited, ("stopping",)) as engine:
        run = engine.handle(run_id)
        with pytest.raises(StepInDoubt, match="was under way 2 times when its host died"):
            await run.result(60)
        labels = [each.label for each in await recorded(engine, run, e.Posted)]
        assert labels == ["stopped: retry", "in doubt: fail"]


async def test_stopped_queued_step_is_reconciled(shared_url: str) -> None:
    run_id = await stop_often(shared_url, "asks_there", 2)
    async with opened(shared_url, queues=("stopping",)) as engine:
        run = engine.handle(run_id)
        assert await run.result(60) == 3
        labels = [each.label for each in await recorded(engine, run, e.Posted)]
        assert labels == ["stopped: reconcile"]
    assert len(asked) == 2


async def test_queued_work_that_must_not_be_repeated_is_not(shared_url: str) -> None:
    run_id = await stop_often(shared_url, "fails_there", 1)
    async with opened(shared_url, queues=("stopping",)) as engine:
        run = engine.handle(run_id)
        with pytest.raises(StepInDoubt):
            await run.result(60)
        labels = [each.label for each in await recorded(engine, run, e.Posted)]
        assert labels == ["in doubt: fail"]
    assert begun == [1]


async def test_a_thread_of_a_queue_that_does_not_end_counts(
    shared_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.host.runs.dispatcher.LONGEST_CLEAN_UP_S", 0.1)
    release.clear()
    run_id = await stop_often(shared_url, "threads_there", 1)
    release.set()
    async with opened(shared_url, queues=("stopping",)) as engine:
        run = engine.handle(run_id)
        assert await run.result(60) == 2
        labels = [each.label for each in await recorded(engine, run, e.Posted)]
        assert labels == ["in doubt: retry"]


async def test_the_digits_of_a_step_do_not_run_out(
    shared_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.engine.runs.doubts.MOST_DOUBTS", 3)
    monkeypatch.setattr("perdure.core.replay.doubt.MOST_DOUBTS", 3)
    run_id = await stop_often(shared_url, "lasts", 3, patience=9)
    async with opened(shared_url) as engine:
        run = engine.handle(run_id)
        with pytest.raises(StepInDoubt, match=r"attempts exhausted \(4 of 4\) for step") as caught:
            await run.result(60)
        assert run_id in str(caught.value)
        # All three were stops: the message must not say that a host died.
        assert "its host ended 3 times" in str(caught.value)
        assert "at least 2 of them by an orderly stop" in str(caught.value)
        assert "died" not in str(caught.value)
        labels = [each.label for each in await recorded(engine, run, e.Posted)]
        assert labels == ["stopped: retry"] * 2 + ["in doubt: fail"]
    assert MOST_DOUBTS > 3
