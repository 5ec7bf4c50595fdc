"""Views of operators' acts, messages, attempts and schedules: what they have equals what the engine says."""

from datetime import UTC, datetime
from typing import Any

import pytest

import perdure
from perdure import Engine, Every, Retry, RunStatus, Signal, task, workflow
from perdure.core.journal import events as e
from tests.client.engines import opened, store_of, until_recorded, until_status, until_store

WAIT = 60
word = Signal("operations.word", str)


@task(name="operations.hopeless", retry=Retry(attempts=2, first=0.001), on_failure="park")
async def hopeless() -> int:
    if perdure.info().logical_attempt < 2:
        raise ValueError("no address")
    return 7


@workflow(name="operations.parking")
async def parking() -> int:
    return await hopeless()


@workflow(name="operations.listening")
async def listening() -> str:
    return await word.receive()


async def rows(engine: Engine, query: str, *args: Any) -> list[tuple[Any, ...]]:
    return (await engine.sql(query, *args)).rows


async def is_parked(engine: Engine) -> bool:
    return bool(await rows(engine, "SELECT run_id FROM perdure_v1_parked_steps"))


async def test_the_views_of_parked_steps_attempts_and_decisions_say_what_the_engine_says(
    engine_url: str,
) -> None:
    async with opened(engine_url) as engine:
        run = await engine.start(parking())
        await until_store(lambda: is_parked(engine))
        (wait,) = (await run.waits()).parked
        found = await rows(engine, "SELECT run_id, step, task, error FROM perdure_v1_parked_steps")
        ((run_id, step, name, fingerprint),) = found
        assert (run_id, step, name) == (run.run_id, wait.step, wait.task)
        assert [each.run_id for each in (await engine.runs(error=fingerprint)).runs] == [run.run_id]
        refused = await run.skip_step("root.9", reason="wrong step")
        receipt = await run.retry_step(wait.step, reason="address added")
        verdicts = [await each.decision(WAIT) for each in (refused, receipt)]
        assert await run.result(WAIT) == 7
        assert not await is_parked(engine)
        columns = "seq, signal_id, type, is_accepted, code, reason"
        query = f"SELECT {columns} FROM perdure_v1_decisions WHERE run_id = $1 ORDER BY seq"
        assert [
            (seq, bool(is_accepted), code)
            for seq, _, _, is_accepted, code, _ in await rows(engine, query, run.run_id)
        ] == [(each.seq, each.accepted, each.code) for each in verdicts]
        assert [row[2] for row in await rows(engine, query, run.run_id)] == [
            "SKIP_STEP",
            "RETRY_STEP",
        ]
        query = (
            "SELECT attempt, logical_attempt, status, started_at_ms, retry_at_ms IS NULL"
            " FROM perdure_v1_attempts WHERE run_id = $1 ORDER BY attempt"
        )
        attempts = await rows(engine, query, run.run_id)
        assert [(each[0], each[1], each[2]) for each in attempts] == [
            (1, 1, "failed"),
            (2, 1, "failed"),
            (3, 2, "completed"),
        ]
        assert [bool(each[4]) for each in attempts] == [False, True, True], "a parked one: never"
        assert [each[3] for each in attempts] == [
            entry.at_ms
            for entry in await store_of(engine).entries(run.run_id)
            if isinstance(entry.event, e.InvokeStarted)
        ]


async def test_the_view_of_messages_has_what_the_run_has_not_recorded(engine_url: str) -> None:
    async with opened(engine_url) as engine:
        run = await engine.start(listening())
        await until_recorded(engine, run, e.ExecutionAwaiting)
        await (await run.pause()).decision(WAIT)
        await until_status(run, RunStatus.PAUSED)
        await run.signal(word, "later")
        query = "SELECT guid, kind, step, due_at_ms, state, payload_bytes FROM perdure_v1_messages"
        assert await rows(engine, query) == [
            (each.guid, each.kind, each.step, each.due_at_ms, state, len(each.payload or b""))
            for each, state, _ in await store_of(engine).messages(run.run_id)
        ]
        assert len(await rows(engine, query)) == 1
        await run.resume()
        assert await run.result(WAIT) == "later"
        assert await rows(engine, query) == []


@pytest.mark.parametrize("is_paused", [False, True])
async def test_the_views_of_schedules_and_ticks_say_what_the_engine_says(
    engine_url: str, is_paused: bool
) -> None:
    async with opened(engine_url) as engine:
        schedule = await engine.schedule("hourly", listening(), Every(3600), overlap="allow")
        run = await schedule.trigger(id="one")
        if is_paused:
            await schedule.pause("holidays")

        async def has_tick() -> bool:
            return bool(await schedule.ticks())

        await until_store(has_tick)
        info = await schedule.info()
        query = (
            "SELECT scope, name, program, overlap, is_paused, note, next_at_ms, last_run"
            " FROM perdure_v1_schedules"
        )
        ((*names, paused, note, next_at_ms, last_run),) = await rows(engine, query)
        assert names == [info.scope, info.name, info.program, info.overlap.value]
        assert (bool(paused), note, last_run) == (info.is_paused, info.note, info.last_run)
        assert at(next_at_ms) == info.next_at
        query = "SELECT at_ms, outcome, run_id, reason, count, until_ms FROM perdure_v1_ticks"
        assert [(at(tick[0]), *tick[1:5], at(tick[5])) for tick in await rows(engine, query)] == [
            (each.at, each.outcome, each.run_id, each.reason, each.count, each.until)
            for each in await schedule.ticks()
        ]
        await schedule.delete()
        await run.cancel()


def at(time_ms: int | None) -> datetime | None:
    return None if time_ms is None else datetime.fromtimestamp(time_ms / 1000, UTC)
