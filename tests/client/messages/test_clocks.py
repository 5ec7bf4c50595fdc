"""Hosts whose wall clocks differ: messages due at once are due for all hosts, and timers follow one clock."""

import logging

import pytest

import perdure
from perdure import Settings, Signal, task, workflow
from perdure.core.journal import events as e
from perdure.host import clock
from perdure.testing.probe import Probe
from tests.client.engines import opened, recorded, until_published, until_recorded
from tests.client.messages.test_order_between_hosts import HOUR_MS, set_clock

PATIENCE_S = 30
CLOSE_MS = 60_000
"""Equal clocks differ by less, even on a slow machine; skewed clocks differ by an hour."""


go_on = Signal("clocks.go_on", type(None))


@task(name="clocks.stamp", queue="clocks")
async def stamp(letter: str) -> str:
    return f"stamped {letter}"


@workflow(name="clocks.posting")
async def posting(letter: str) -> str:
    return await stamp(letter)


@workflow(name="clocks.sleeping")
async def sleeping(seconds: float) -> None:
    await perdure.sleep(seconds)


@pytest.mark.parametrize("ahead_ms", [HOUR_MS, -HOUR_MS], ids=["ahead", "behind"])
async def test_work_of_a_host_with_a_wrong_clock_is_claimed_at_once(
    shared_url: str, ahead_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(shared_url) as wrong, opened(shared_url, queues=("clocks",)):
        set_clock(wrong, monkeypatch, ahead_ms)
        run = await wrong.start(posting("a"))
        assert await run.result(PATIENCE_S) == "stamped a"


@pytest.mark.parametrize("ahead_ms", [HOUR_MS, -HOUR_MS], ids=["ahead", "behind"])
async def test_work_that_a_host_with_a_wrong_clock_gives_back_is_claimed_at_once(
    shared_url: str, ahead_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(shared_url) as owner:
        async with opened(shared_url, Settings(concurrency=1), ("clocks",)) as wrong:
            set_clock(wrong, monkeypatch, ahead_ms)
            Probe(wrong).host.worker.pause()
            run = await owner.start(posting("a"))
            claimed = await Probe(wrong).store.claim_work(
                Probe(wrong).host_id, ["clocks"], "t", Probe(owner).now_ms, 1000, 1
            )
            assert len(claimed) == 1
        async with opened(shared_url, queues=("clocks",)):
            assert await run.result(PATIENCE_S) == "stamped a"


@pytest.mark.postgres
async def test_timers_follow_the_clock_of_postgres(
    emptied_postgres: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    wall_ms = clock._wall_ms
    with caplog.at_level(logging.WARNING, "perdure.host"):
        monkeypatch.setattr(clock, "_wall_ms", lambda: wall_ms() + HOUR_MS)
        async with opened(emptied_postgres) as engine:
            assert abs(engine.clock_skew * 1000 - HOUR_MS) < CLOSE_MS
            assert abs(Probe(engine).now_ms - wall_ms()) < CLOSE_MS
            run = await engine.start(sleeping(0.01))
            await run.result(PATIENCE_S)
            (timer,) = await recorded(engine, run, e.TimerScheduled)
            assert abs(timer.fire_at_ms - wall_ms()) < CLOSE_MS
    warnings = [each.getMessage() for each in caplog.records if "clock" in each.getMessage()]
    assert len(warnings) == 1
    assert "ahead of" in warnings[0]


async def test_a_clock_that_is_set_back_does_not_hold_up_an_engine_on_sqlite(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wall_ms = clock._wall_ms
    async with opened("sqlite:///:memory:") as engine:
        run = await engine.start(sleeping(0.01))
        await run.result(PATIENCE_S)
        monkeypatch.setattr(clock, "_wall_ms", lambda: wall_ms() - HOUR_MS)
        later = await engine.start(sleeping(0.01))
        await until_recorded(engine, later, e.TimerScheduled)
        await later.result(PATIENCE_S)
        assert engine.clock_skew == 0


@task(name="clocks.telling")
async def telling(value: str) -> None:
    perdure.publish("progress", value)


@workflow(name="clocks.reporting")
async def reporting(is_task: bool) -> None:
    for value in ("before", "after"):
        if is_task:
            await telling(value)
        else:
            perdure.publish("progress", value)
        await go_on.receive()


@pytest.mark.parametrize("is_task", [True, False], ids=["a task", "a workflow"])
@pytest.mark.parametrize("is_new_process", [True, False])
async def test_value_published_after_the_clock_was_set_back_is_the_newest(
    shared_url: str, is_task: bool, is_new_process: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(shared_url) as engine:
        run = await engine.start(reporting(is_task))
        await until_published(run, progress="before")
        if not is_new_process:
            set_clock(engine, monkeypatch, -HOUR_MS)
            await run.signal(go_on, None)
            await until_published(run, progress="after")
    if is_new_process:
        async with opened(shared_url) as engine:
            set_clock(engine, monkeypatch, -HOUR_MS)
            run = engine.handle(run.run_id)
            await run.signal(go_on, None)
            await until_published(run, progress="after")
