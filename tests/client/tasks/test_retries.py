"""Retries: which failures are repeated, when, and the info of an attempt."""

import asyncio
import gc
import threading
from itertools import pairwise

import pytest

import perdure
from perdure import (
    Engine,
    Info,
    Retry,
    RunCancelled,
    RunStatus,
    Settings,
    Workflow,
    task,
    workflow,
)
from perdure.core.journal import events as e
from perdure.engine.runs.warm import WarmRun
from perdure.host.tasks.queues import QueueWorker
from perdure.testing.probe import Probe
from tests.client.engines import (
    ALWAYS_REPLAY,
    journal,
    opened,
    recorded,
    until,
    until_recorded,
)

SOON = Retry(attempts=3, first=0.02, jitter=0)


class Unlucky(Exception):
    pass


class Broke(Unlucky):
    pass


async def test_the_journal_shows_each_attempt_and_when_the_next_is_due(engine: Engine) -> None:
    attempts: list[int] = []

    @task(retry=SOON)
    async def flaky() -> str:
        attempts.append(perdure.info().attempt)
        if len(attempts) < 3:
            raise Unlucky
        return "third time lucky"

    @workflow
    async def trying() -> str:
        return await flaky()

    run = await engine.start(trying())
    assert await run.result(60) == "third time lucky"
    assert attempts == [1, 2, 3]
    kinds = (e.InvokeScheduled, e.InvokeStarted, e.InvokeRetrying, e.InvokeCompleted)
    events = [event for event in await journal(engine, run) if isinstance(event, kinds)]
    assert [type(event).__name__.removeprefix("Invoke") for event in events] == [
        "Scheduled",
        "Started",
        "Retrying",
        "Started",
        "Retrying",
        "Started",
        "Completed",
    ]


async def test_no_attempt_begins_before_it_is_due(engine: Engine) -> None:
    @task(retry=Retry(attempts=4, first=0.03, factor=2, ceiling=0.05, jitter=0))
    async def failing() -> None:
        raise Unlucky

    @workflow
    async def trying() -> None:
        await failing()

    run = await engine.start(trying())
    with pytest.raises(Unlucky):
        await run.result(60)
    entries = [entry async for entry in run.events()]
    failed = [entry for entry in entries if isinstance(entry.event, e.InvokeRetrying)]
    started = [entry for entry in entries if isinstance(entry.event, e.InvokeStarted)]
    attempts = zip(started, failed, started[1:], (30, 50, 50), strict=False)
    for first, retry, again, delay_ms in attempts:
        assert isinstance(retry.event, e.InvokeRetrying)
        assert first.at_ms <= retry.event.retry_at_ms - delay_ms <= retry.at_ms
        assert again.at_ms >= retry.event.retry_at_ms
    assert (len(started), len(failed)) == (4, 3)


async def test_the_last_failure_is_the_outcome(engine: Engine) -> None:
    @task(retry=SOON)
    async def failing() -> None:
        raise Unlucky(perdure.info().attempt)

    @workflow
    async def trying() -> None:
        await failing()

    run = await engine.start(trying())
    with pytest.raises(Unlucky) as caught:
        await run.result(60)
    assert caught.value.args == (3,)


@pytest.mark.parametrize(
    ("policy", "error", "attempts"),
    [
        (Retry(attempts=3, first=0, on=Unlucky), Unlucky, 3),
        (Retry(attempts=3, first=0, on=Unlucky), Broke, 3),
        (Retry(attempts=3, first=0, on=Unlucky), KeyError, 1),
        (Retry(attempts=3, first=0, on=(Unlucky, KeyError)), KeyError, 3),
        (Retry(attempts=3, first=0, give_up_on=Broke), Unlucky, 3),
        (Retry(attempts=3, first=0, give_up_on=Broke), Broke, 1),
        (Retry(attempts=1), Unlucky, 1),
    ],
)
async def test_only_failures_that_the_policy_covers_are_repeated(
    engine_url: str, policy: Retry, error: type[Exception], attempts: int
) -> None:
    @task(retry=policy)
    async def failing() -> None:
        raise error

    @workflow
    async def trying() -> None:
        await failing()

    async with opened(engine_url) as engine:
        run = await engine.start(trying())
        with pytest.raises(error):
            await run.result(60)
        assert len(await recorded(engine, run, e.InvokeStarted)) == attempts


async def test_a_policy_may_allow_more_attempts_than_the_ledger_has_digits_for() -> None:
    attempts = 0

    @task(retry=Retry(attempts=200, first=0))
    async def failing() -> None:
        nonlocal attempts
        attempts += 1
        raise Unlucky

    @workflow
    async def trying() -> None:
        await failing()

    async with opened("sqlite:///:memory:") as engine:
        run = await engine.start(trying())
        with pytest.raises(Unlucky):
            await run.result(60)
    assert attempts == 200


async def test_each_attempt_of_an_async_task_has_the_whole_timeout(engine: Engine) -> None:
    cancelled: list[int] = []

    @task(retry=Retry(attempts=2, first=0), timeout=0.05)
    async def slow() -> str:
        attempt = perdure.info().attempt
        try:
            await asyncio.sleep(10 if attempt == 1 else 0.01)
        except asyncio.CancelledError:
            cancelled.append(attempt)
            raise
        return "in time"

    @workflow
    async def trying() -> str:
        return await slow()

    run = await engine.start(trying())
    assert await run.result(60) == "in time"
    assert cancelled == [1]


async def test_a_task_that_takes_too_long_raises_timeout_error_in_the_workflow(
    engine: Engine,
) -> None:
    @task(timeout=0.02)
    async def slow() -> None:
        await asyncio.sleep(10)

    @workflow
    async def trying() -> str:
        try:
            await slow()
        except TimeoutError as error:
            return str(error)
        return ""

    run = await engine.start(trying())
    assert await run.result(60) == "attempt 1 of task 'slow' took longer than 0.02 s"


async def test_a_sync_task_that_takes_too_long_is_left_behind(engine: Engine) -> None:
    release = threading.Event()

    @task(retry=Retry(attempts=2, first=0), timeout=0.05)
    def slow() -> int:
        if perdure.info().attempt == 1:
            release.wait(10)
        return perdure.info().attempt

    @workflow
    async def trying() -> int:
        return await slow()

    run = await engine.start(trying())
    assert await run.result(60) == 2
    release.set()


async def test_a_timeout_error_of_the_tasks_own_is_not_taken_for_its_timeout(
    engine: Engine,
) -> None:
    @task(timeout=5)
    async def failing() -> None:
        raise TimeoutError("the server said no")

    @workflow
    async def trying() -> None:
        await failing()

    run = await engine.start(trying())
    with pytest.raises(TimeoutError, match="the server said no"):
        await run.result(60)


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_task_that_falls_silent_is_ended(engine_url: str, is_async: bool) -> None:
    release = threading.Event()

    @task(name="silent", heartbeat_timeout=0.05)
    async def waiting() -> None:
        await asyncio.sleep(10)

    @task(name="silent", heartbeat_timeout=0.05)
    def blocking() -> None:
        release.wait(10)

    @workflow
    async def trying() -> None:
        await (waiting() if is_async else blocking())

    async with opened(engine_url) as engine:
        run = await engine.start(trying())
        with pytest.raises(TimeoutError, match=r"gave no heartbeat for 0\.05 s"):
            await run.result(60)
        release.set()


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_task_that_gives_heartbeats_lives_on(engine_url: str, is_async: bool) -> None:
    @task(heartbeat_timeout=1)
    async def waiting() -> str:
        for _ in range(6):
            await asyncio.sleep(0.2)
            perdure.heartbeat()
        return "alive"

    @task(heartbeat_timeout=1)
    def blocking() -> str:
        for _ in range(6):
            threading.Event().wait(0.2)
            perdure.heartbeat()
        return "alive"

    @workflow
    async def trying() -> str:
        return await (waiting() if is_async else blocking())

    async with opened(engine_url) as engine:
        assert await (await engine.start(trying())).result(60) == "alive"


async def test_retry_delay_continues_in_the_next_engine(shared_url: str) -> None:
    attempts: list[int] = []

    @task(retry=Retry(attempts=2, first=0.4, jitter=0))
    async def flaky() -> int:
        attempts.append(perdure.info().attempt)
        if len(attempts) == 1:
            raise Unlucky
        return len(attempts)

    @workflow
    async def trying() -> int:
        return await flaky()

    async with opened(shared_url) as engine:
        run = await engine.start(trying())
        due_at_ms = (await until_recorded(engine, run, e.InvokeRetrying)).retry_at_ms
    async with opened(shared_url) as engine:
        run = engine.handle(run.run_id)
        assert await run.result(60) == 2
        assert attempts == [1, 2]
        entries = [entry async for entry in run.events()]
        again = [each for each in entries if isinstance(each.event, e.InvokeStarted)][-1]
        assert again.at_ms >= due_at_ms


async def test_a_retry_delay_that_is_over_before_the_next_engine_opens_is_not_waited_for(
    shared_url: str,
) -> None:
    attempts: list[int] = []

    @task(retry=Retry(attempts=2, first=0.05, jitter=0))
    async def flaky() -> list[int]:
        attempts.append(perdure.info().attempt)
        if len(attempts) == 1:
            raise Unlucky
        return attempts

    @workflow
    async def trying() -> list[int]:
        return await flaky()

    async with opened(shared_url) as engine:
        run = await engine.start(trying())
        await until_recorded(engine, run, e.InvokeRetrying)
    await asyncio.sleep(0.1)
    async with opened(shared_url) as engine:
        assert await engine.handle(run.run_id).result(60) == [1, 2]
        assert not await Probe(engine).store.messages(run.run_id)


def failing_once(delay_s: float) -> Workflow[[], str]:
    """A workflow whose task fails once, and is due again after the delay."""
    has_failed = False

    @task(retry=Retry(attempts=2, first=delay_s, jitter=0))
    async def flaky() -> str:
        nonlocal has_failed
        if not has_failed:
            has_failed = True
            raise Unlucky
        return "done"

    @workflow
    async def trying() -> str:
        return await flaky()

    return trying


async def test_a_run_needs_no_memory_while_it_waits_for_a_retry(engine_url: str) -> None:
    trying = failing_once(3600)
    async with opened(engine_url, ALWAYS_REPLAY) as engine:
        run = await engine.start(trying())
        await until_recorded(engine, run, e.InvokeRetrying)
        await until(lambda: not _warm_runs())
        assert await run.status() is RunStatus.BLOCKED
        await run.cancel()
        with pytest.raises(RunCancelled):
            await run.result(60)


async def test_a_run_that_left_memory_during_a_retry_delay_resumes(engine_url: str) -> None:
    trying = failing_once(0.3)
    async with opened(engine_url, ALWAYS_REPLAY) as engine:
        run = await engine.start(trying())
        assert await run.result(60) == "done"


def _warm_runs() -> list[WarmRun]:
    gc.collect()
    return [found for found in gc.get_objects() if type(found) is WarmRun]


async def test_the_key_is_the_same_in_all_attempts_and_differs_between_steps(
    engine: Engine,
) -> None:
    keys: list[str] = []

    @task(retry=SOON)
    async def paying() -> None:
        keys.append(perdure.key())
        if perdure.info().attempt < 3:
            raise Unlucky

    @workflow
    async def trying() -> None:
        await paying()
        await paying()

    first, second = [await engine.start(trying()) for _ in range(2)]
    await first.result(60)
    await second.result(60)
    assert len(keys) == 12
    assert len(set(keys)) == 4


async def test_info_of_a_task_has_its_run_step_and_attempt(engine: Engine) -> None:
    seen: list[Info] = []

    @task(retry=SOON)
    def looking() -> None:
        seen.append(perdure.info())
        if perdure.info().attempt < 2:
            raise Unlucky

    @workflow(version="7")
    async def trying() -> None:
        perdure.now()
        await looking()

    run = await engine.start(trying(), key="k-1")
    await run.result(60)
    expected = ("trying", "7", "k-1", "root.1")
    assert seen == [Info(run.run_id, *expected, attempt) for attempt in (1, 2)]  # type: ignore[arg-type]


async def test_a_retry_that_finds_no_slot_begins_when_one_is_free(engine_url: str) -> None:
    order: list[str] = []

    @task(retry=Retry(attempts=2, first=0.02, jitter=0))
    async def flaky() -> None:
        order.append(f"attempt {perdure.info().attempt}")
        if perdure.info().attempt == 1:
            raise Unlucky

    @task
    async def holding() -> None:
        await asyncio.sleep(0.2)
        order.append("slot given up")

    @workflow
    async def trying() -> None:
        await perdure.gather(flaky(), holding())

    async with opened(engine_url, Settings(concurrency=1)) as engine:
        await (await engine.start(trying())).result(60)
    assert order == ["attempt 1", "slot given up", "attempt 2"]


async def test_a_retry_that_waits_for_a_slot_does_not_keep_its_engine_busy(
    engine_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    poll = QueueWorker.poll

    async def counted(worker: QueueWorker) -> None:
        # Each poll that finds something due ends with the queues.
        nonlocal looks
        looks += 1
        await poll(worker)

    @task(retry=Retry(attempts=2, first=0.02, jitter=0))
    async def flaky() -> None:
        if perdure.info().attempt == 1:
            raise Unlucky

    @task
    async def holding() -> None:
        await asyncio.sleep(0.5)

    @workflow
    async def trying() -> None:
        await perdure.gather(flaky(), holding())

    monkeypatch.setattr(QueueWorker, "poll", counted)
    async with opened(engine_url, Settings(concurrency=1)) as engine:
        await (await engine.start(trying())).result(60)
    assert looks < 10


async def test_jitter_takes_away_at_most_its_share_of_a_delay(engine_url: str) -> None:
    @task(retry=Retry(attempts=8, first=0.02, factor=1, jitter=0.5))
    async def failing() -> None:
        raise Unlucky

    @workflow
    async def trying() -> None:
        await failing()

    async with opened(engine_url) as engine:
        run = await engine.start(trying())
        with pytest.raises(Unlucky):
            await run.result(60)
        retries = await recorded(engine, run, e.InvokeRetrying)
        assert all(before.retry_at_ms < after.retry_at_ms for before, after in pairwise(retries))
        entries = [entry async for entry in run.events()]
    delays_ms = [
        entry.event.retry_at_ms - entry.at_ms
        for entry in entries
        if isinstance(entry.event, e.InvokeRetrying)
    ]
    # The entry is stamped after the delay was decided; a busy machine may pause in between.
    assert all(delay_ms <= 20 for delay_ms in delays_ms)
    assert len(set(delays_ms)) > 1
