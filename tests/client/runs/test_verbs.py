"""Durable verbs: a replayed workflow reads the same values again."""

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import perdure
from perdure import Engine, Info, Settings, task, workflow
from perdure.core.journal import events as e
from tests.client.engines import ALWAYS_REPLAY, opened, recorded, until_recorded


@task(name="verbs.nothing")
async def nothing() -> None:
    await asyncio.sleep(0)


async def test_the_time_the_dice_and_the_uuids_repeat_themselves_in_a_replay(
    engine_url: str,
) -> None:
    seen: list[tuple[Any, ...]] = []

    @workflow
    async def reading() -> None:
        dice = perdure.random()
        values = (perdure.now(), dice.random(), dice.randint(1, 10**9), perdure.uuid4())
        seen.append(values)
        for _ in range(3):
            await nothing()

    async with opened(engine_url, ALWAYS_REPLAY) as engine:
        await (await engine.start(reading())).result(60)
    assert len(seen) > 3
    assert len(set(seen)) == 1


async def test_random_values_differ_within_a_run_and_between_runs(engine: Engine) -> None:
    @workflow
    async def drawing() -> list[str]:
        ids = [str(perdure.uuid4()) for _ in range(3)]
        return ids + [str(perdure.random().random()) for _ in range(3)]

    runs = [await engine.start(drawing()) for _ in range(2)]
    values = [value for run in runs for value in await run.result(60)]
    assert len(set(values)) == 12


async def test_now_is_the_time_in_utc(engine: Engine) -> None:
    @workflow
    async def reading() -> datetime:
        return perdure.now()

    before = datetime.now(UTC) - timedelta(milliseconds=2)
    time_read = await (await engine.start(reading())).result(60)
    assert time_read.tzinfo == UTC
    assert before <= time_read <= datetime.now(UTC)


async def test_a_uuid_is_of_version_4(engine: Engine) -> None:
    @workflow
    async def drawing() -> int | None:
        return perdure.uuid4().version

    assert await (await engine.start(drawing())).result(60) == 4


@pytest.mark.parametrize("duration", [0.05, timedelta(milliseconds=50)])
async def test_sleep_lasts_at_least_its_duration(
    engine_url: str, duration: float | timedelta
) -> None:
    @workflow
    async def sleeping() -> timedelta:
        before = perdure.now()
        await perdure.sleep(duration)
        return perdure.now() - before

    async with opened(engine_url) as engine:
        slept = await (await engine.start(sleeping())).result(60)
    assert timedelta(milliseconds=50) <= slept < timedelta(milliseconds=500)


async def test_sleep_of_zero_returns(engine: Engine) -> None:
    @workflow
    async def sleeping() -> str:
        await perdure.sleep(0)
        return "awake"

    assert await (await engine.start(sleeping())).result(60) == "awake"


async def test_a_sleep_ends_on_time_in_the_next_engine(
    shared_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    @workflow
    async def sleeping() -> str:
        await perdure.sleep(2)
        return "awake"

    # A look that comes by itself would come far too late.
    seldom = Settings(heartbeat=60, stale_after=240)
    monkeypatch.setattr("perdure.host.host.POLL_MS", 60_000)
    async with opened(shared_url, seldom) as engine:
        run = await engine.start(sleeping())
        scheduled = await until_recorded(engine, run, e.TimerScheduled)
    async with opened(shared_url, seldom) as engine:
        again = engine.handle(run.run_id)
        assert await again.result(60) == "awake"
        entries = [entry async for entry in again.events()]
    (fired,) = [entry for entry in entries if isinstance(entry.event, e.TimerFired)]
    assert fired.at_ms >= scheduled.fire_at_ms


async def test_a_workflow_logs_once_however_often_it_is_replayed(
    engine_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    replays: list[int] = []

    @workflow
    async def logging_its_way() -> None:
        replays.append(1)
        perdure.log.warning("began")
        for number in range(3):
            await nothing()
            perdure.log.warning("did %d", number)

    async with opened(engine_url, ALWAYS_REPLAY) as engine:
        await (await engine.start(logging_its_way())).result(60)
    assert len(replays) > 3
    said = [record.getMessage() for record in caplog.records if record.name == "perdure.log"]
    assert said == ["began", "did 0", "did 1", "did 2"]


async def test_a_record_of_the_log_names_its_run(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    @task
    async def telling() -> None:
        perdure.log.warning("in the task", extra={"mine": 1})

    @workflow
    async def logging_its_way() -> None:
        await telling()

    run = await engine.start(logging_its_way())
    await run.result(60)
    (record,) = [record for record in caplog.records if record.name == "perdure.log"]
    assert record.levelno == logging.WARNING
    fields = vars(record)
    assert (fields["run_id"], fields["step"], fields["mine"]) == (run.run_id, "root.0", 1)


async def test_what_a_workflow_publishes_is_read_by_a_client(engine: Engine) -> None:
    @workflow
    async def publishing() -> None:
        perdure.publish("phase", "one")
        await nothing()
        perdure.publish("phase", "two")
        perdure.publish("items", [1, {"a": None}])

    run = await engine.start(publishing())
    await run.result(60)
    assert await run.published() == {"phase": "two", "items": [1, {"a": None}]}


async def test_what_a_workflow_publishes_is_there_while_it_waits(engine: Engine) -> None:
    @workflow
    async def publishing() -> None:
        perdure.publish("phase", "asleep")
        await perdure.sleep(0.2)

    run = await engine.start(publishing())
    assert await run.published() == {"phase": "asleep"}
    await run.result(60)


async def test_a_replay_publishes_nothing_again(engine_url: str) -> None:
    @task
    async def overwrite() -> None:
        perdure.publish("phase", "newer, from a task")

    @workflow
    async def publishing() -> None:
        perdure.publish("phase", "old")
        await overwrite()
        await perdure.sleep(0.05)
        await nothing()

    async with opened(engine_url, ALWAYS_REPLAY) as engine:
        run = await engine.start(publishing())
        await run.result(60)
        assert await run.published() == {"phase": "newer, from a task"}


@pytest.mark.parametrize("is_async", [True, False])
async def test_the_last_value_that_a_task_publishes_stays(engine_url: str, is_async: bool) -> None:
    def report() -> None:
        for percent in range(101):
            perdure.publish("percent", percent)

    @task
    async def waiting() -> None:
        report()

    @task
    def blocking() -> None:
        report()

    @workflow
    async def publishing() -> None:
        await (waiting() if is_async else blocking())

    async with opened(engine_url) as engine:
        run = await engine.start(publishing())
        await run.result(60)
        assert await run.published() == {"percent": 100}


async def test_info_of_a_workflow_has_its_run(engine: Engine) -> None:
    seen: list[Info] = []

    @workflow(version="2")
    async def looking() -> None:
        seen.append(perdure.info())

    run = await engine.start(looking(), key="mine")
    await run.result(60)
    assert seen[0] == Info(run.run_id, "looking", "2", "mine", seen[0].step)


async def test_each_value_is_one_entry_of_the_journal(engine: Engine) -> None:
    @workflow
    async def reading() -> None:
        perdure.now()
        perdure.random()
        perdure.uuid4()

    run = await engine.start(reading())
    await run.result(60)
    times = await recorded(engine, run, e.TimeRecorded)
    drawn = await recorded(engine, run, e.RandomGenerated)
    assert [each.promise_id for each in times] == ["root.0"]
    assert [each.promise_id for each in drawn] == ["root.1", "root.2"]
