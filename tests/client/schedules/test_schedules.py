from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import perdure
from perdure import Cron, Engine, Every, InputError, Once, Retry, task, workflow
from perdure.core.errors import UnknownSchedule
from perdure.testing import simulated
from perdure.testing.virtual_clock import Clock
from tests.client.engines import assert_sound, opened


@task(name="schedule_counted", retry=Retry(attempts=1))
async def counted(x: int) -> int:
    return x


@workflow(name="schedule_report")
async def report(x: int = 1) -> int:
    return await counted(x)


@workflow(name="schedule_lasts")
async def lasts(minutes: float) -> None:
    await perdure.sleep(minutes * 60)


async def outcomes(engine: Engine, name: str) -> list[str]:
    ticks = await engine.schedule_handle(name).ticks()
    return [tick.outcome for tick in sorted(ticks, key=lambda tick: tick.at)]


async def begin(engine: Engine, clock: Clock, overlap: Any) -> None:
    await engine.schedule("s", lasts(1.5), Every(60), overlap=overlap)
    await clock.advance(5 * 60 + 1)


async def test_each_tick_starts_one_run_with_its_instant_in_its_key() -> None:
    engine = Engine("sqlite:///:memory:")
    async with simulated(engine) as clock:
        begun = clock.now
        await engine.schedule("hourly", report(5), Every(timedelta(hours=1)))
        await clock.advance(3 * 3600)
        ticks = await engine.schedule_handle("hourly").ticks()
        assert [tick.outcome for tick in ticks] == ["started"] * 3
        assert [tick.at for tick in ticks] == [begun + timedelta(hours=n) for n in (3, 2, 1)]
        for tick in ticks:
            key = f"schedule:hourly:{tick.at.isoformat(timespec='milliseconds')}"
            run = await engine.find(report, key)
            assert run is not None
            assert (run.run_id, await run.result()) == (tick.run_id, 5)
        tagged = await engine.runs(tags={"perdure.schedule": "hourly"})
        assert {run.run_id for run in tagged.runs} == {tick.run_id for tick in ticks}
        await assert_sound(engine)


@pytest.mark.parametrize(
    ("overlap", "expected"),
    [
        ("skip", ["started", "skipped", "started", "skipped", "started"]),
        ("allow", ["started"] * 5),
        ("replace", ["started"] * 5),
        ("buffer", ["started", "started", "started", "skipped"]),
    ],
)
async def test_overlap(overlap: str, expected: list[str]) -> None:
    """Runs of a minute and a half, a tick each minute."""
    engine = Engine("sqlite:///:memory:")
    async with simulated(engine) as clock:
        await begin(engine, clock, overlap)
        found = await outcomes(engine, "s")
        assert found[: len(expected)] == expected[: len(found)]
        assert len(found) >= 4
        if overlap == "replace":
            ended = [
                (await engine.handle(tick.run_id or "").status()).value
                for tick in await engine.schedule_handle("s").ticks()
            ]
            assert ended[0] == "blocked"
            assert set(ended[1:]) == {"cancelled"}
        await assert_sound(engine)


async def test_a_paused_schedule_does_not_tick_and_says_why() -> None:
    engine = Engine("sqlite:///:memory:")
    async with simulated(engine) as clock:
        schedule = await engine.schedule("s", report(), Every(60))
        await schedule.pause("stocktaking")
        assert (await schedule.info()).note == "stocktaking"
        assert await schedule.next() == []
        await clock.advance(190)
        await schedule.resume()
        (tick,) = await schedule.ticks()
        assert (tick.outcome, tick.count, tick.reason) == ("skipped", 3, "paused: stocktaking")
        await clock.advance(60)
        assert await outcomes(engine, "s") == ["skipped", "started"]
        await assert_sound(engine)


async def test_an_edit_fires_no_tick_twice_and_keeps_the_state() -> None:
    engine = Engine("sqlite:///:memory:")
    async with simulated(engine) as clock:
        await engine.schedule("s", report(1), Every(60))
        await clock.advance(60)
        await engine.schedule("s", report(2), Every(60), jitter=1)
        await clock.advance(61)
        ticks = await engine.schedule_handle("s").ticks()
        results = [await engine.handle(tick.run_id or "").result() for tick in ticks]
        assert results == [2, 1]
        assert ticks[0].at - ticks[1].at == timedelta(seconds=60)
        await assert_sound(engine)


async def test_a_trigger_is_one_run_per_id() -> None:
    engine = Engine("sqlite:///:memory:")
    async with simulated(engine) as clock:
        schedule = await engine.schedule("s", report(7), Every(3600))
        one = await schedule.trigger(id="now")
        other = await schedule.trigger(id="now")
        assert one.run_id == other.run_id
        assert await one.result() == 7
        await clock.settle()
        started = {tick.run_id for tick in await schedule.ticks()}
        assert started == {one.run_id}
        await assert_sound(engine)


async def test_a_backfill_starts_only_what_has_not_run() -> None:
    engine = Engine("sqlite:///:memory:")
    async with simulated(engine) as clock:
        begun = clock.now
        schedule = await engine.schedule("s", report(), Every(60), overlap="allow")
        await clock.advance(125)
        assert await schedule.backfill(begun, begun + timedelta(seconds=301)) == 5
        await clock.settle()
        ticks = await schedule.ticks()
        assert len({tick.run_id for tick in ticks}) == 5
        await clock.advance(200)
        assert len({tick.run_id for tick in await schedule.ticks()}) == 5
        await assert_sound(engine)


async def test_one_time_that_has_passed_ticks_within_the_catch_up_window_only() -> None:
    engine = Engine("sqlite:///:memory:")
    async with simulated(engine) as clock:
        ago = clock.now - timedelta(minutes=10)
        await engine.schedule("late", report(), Once(ago))
        await engine.schedule("too late", report(), Once(ago), catch_up=60)
        await clock.settle()
        assert await outcomes(engine, "late") == ["started"]
        assert await outcomes(engine, "too late") == ["missed"]
        assert (await engine.schedule_handle("late").info()).next_at is None


async def test_schedules_of_another_scope_are_others() -> None:
    engine = Engine("sqlite:///:memory:")
    async with simulated(engine) as clock:
        await engine.schedule("s", report(1), Every(60), scope="a")
        await engine.schedule("s", report(2), Every(60), scope="b")
        await clock.advance(60)
        assert [each.scope for each in await engine.schedules()] == ["a", "b"]
        assert len(await engine.schedules(scope="a")) == 1
        for scope, result in (("a", 1), ("b", 2)):
            (tick,) = await engine.schedule_handle("s", scope=scope).ticks()
            assert await engine.handle(tick.run_id or "").result() == result
        with pytest.raises(UnknownSchedule, match="no schedule 's'"):
            await engine.schedule_handle("s").info()


async def test_a_deleted_schedule_is_gone_and_its_runs_stay() -> None:
    engine = Engine("sqlite:///:memory:")
    async with simulated(engine) as clock:
        schedule = await engine.schedule("s", report(3), Every(60))
        await clock.advance(60)
        (tick,) = await schedule.ticks()
        await schedule.delete()
        await clock.advance(600)
        assert await engine.schedules() == []
        assert await engine.handle(tick.run_id or "").result() == 3
        with pytest.raises(UnknownSchedule):
            await schedule.pause()


async def test_a_front_end_schedules_and_a_host_ticks(shared_url: str) -> None:
    async with opened(shared_url) as host, Engine(shared_url, hosts=False) as front:
        schedule = await front.schedule("s", report(9), Once(datetime.now(UTC)))
        run = await schedule.trigger()
        assert await run.result(30) == 9
        assert [each.program for each in await host.schedules()] == ["schedule_report"]


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"timetable": "0 * * * *"}, "pass Cron"),
        ({"timetable": Cron("not cron")}, "can't be read"),
        ({"timetable": Cron("0 0 * * *", "Nowhere")}, "time zone"),
        ({"timetable": Every(0.2)}, "at least 1 second"),
        ({"timetable": Once(datetime(2030, 1, 1))}, "with a time zone"),  # noqa: DTZ001 - that is wrong
        ({"overlap": "queue"}, "pass one of"),
        ({"jitter": -1}, "jitter"),
        ({"catch_up": float("nan")}, "catch_up"),
        ({"name": ""}, "name of a schedule"),
        ({"call": lambda: counted(1)}, "can't be started alone"),
    ],
)
async def test_wrong_arguments_make_no_schedule(wrong: dict[str, Any], text: str) -> None:
    async with opened("sqlite:///:memory:") as engine:
        given: dict[str, Any] = {"name": "s", "call": report, "timetable": Every(60)} | wrong
        with pytest.raises(InputError, match=text):
            await engine.schedule(
                given.pop("name"), given.pop("call")(), given.pop("timetable"), **given
            )
        assert await engine.schedules() == []
