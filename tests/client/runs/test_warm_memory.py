"""Runs in memory stay within a budget of bytes, and runs that left memory continue all the same."""

import asyncio
import logging

import pytest

import perdure
from perdure import Engine, Settings, Signal, SyncEngine, task, workflow
from perdure.client.runs.status import RunStatus
from perdure.core.journal.events import InvokeCompleted
from perdure.testing.probe import Probe
from tests.client.engines import opened, until, until_recorded, until_status

word = Signal("warm_memory.word", str)

ROOM_FOR_TEN = 120_000
BLOB = 100_000


@task(name="warm_memory.double")
async def double(number: int) -> int:
    return 2 * number


@task(name="warm_memory.blob")
async def blob(number: int) -> str:
    return chr(65 + number) * BLOB


@workflow(name="warm_memory.waiting")
async def waiting(number: int) -> str:
    return f"{await double(number)} {await word.receive()}"


@workflow(name="warm_memory.listening")
async def listening() -> str:
    return await word.receive()


@workflow(name="warm_memory.doubling")
async def doubling(times: int) -> int:
    number = 1
    for _ in range(times):
        number = await double(number)
    return number


@workflow(name="warm_memory.dropping")
async def dropping(times: int) -> str:
    for number in range(times):
        await blob(number)
    return await word.receive()


@workflow(name="warm_memory.keeping")
async def keeping(times: int) -> str:
    kept = [await blob(number) for number in range(times)]
    said = await word.receive()
    return f"{said} {len(kept)}"


async def test_waiting_runs_stay_within_the_budget(engine_url: str) -> None:
    async with opened(engine_url, Settings(warm_memory=ROOM_FOR_TEN)) as engine:
        runs = await engine.start_many(waiting(number) for number in range(40))
        for run in runs:
            await until_recorded(engine, run, InvokeCompleted)
        await until(lambda: Probe(engine).host.dispatcher.is_quiet)
        memory = engine.warm_memory()
        assert 0 < memory.used_bytes <= memory.budget_bytes == ROOM_FOR_TEN
        assert 0 < memory.runs < 20
        assert memory.evictions >= 20
        for run in runs:
            await run.signal(word, "go")
        assert [await run.result(60) for run in runs] == [f"{2 * n} go" for n in range(40)]
        memory = engine.warm_memory()
        assert memory.replays >= 20
        assert (memory.runs, memory.used_bytes) == (0, 0)


async def test_run_with_an_attempt_here_outlasts_idle_runs(engine_url: str) -> None:
    release = asyncio.Event()

    @task(name="warm_memory.held")
    async def held() -> str:
        await release.wait()
        return "released"

    @workflow(name="warm_memory.holding")
    async def holding() -> str:
        return await held()

    async with opened(engine_url, Settings(warm_memory=ROOM_FOR_TEN)) as engine:
        holder = await engine.start(holding())
        await until(lambda: len(Probe(engine).attempts) == 1)
        # One after the other, so that none of them is about to continue when the next one needs room.
        runs = []
        for _ in range(30):
            runs.append(await engine.start(listening()))
            await until_status(runs[-1], RunStatus.BLOCKED)
        assert engine.warm_memory().evictions >= 10
        assert engine.warm_memory().early_evictions == 0
        assert holder.run_id in Probe(engine).warm_runs
        release.set()
        assert await holder.result(60) == "released"
        for run in runs:
            await run.cancel()
            await until_status(run, RunStatus.CANCELLED)


async def test_run_larger_than_the_budget_is_not_replayed_at_every_step(engine_url: str) -> None:
    async with opened(engine_url, Settings(warm_memory=1)) as engine:
        run = await engine.start(doubling(20))
        assert await run.result(60) == 1 << 20
        assert engine.warm_memory().replays == 0


async def test_runs_larger_than_the_budget_all_make_progress(engine_url: str) -> None:
    async with opened(engine_url, Settings(warm_memory=1)) as engine:
        runs = await engine.start_many(doubling(5) for _ in range(20))
        assert [await run.result(60) for run in runs] == [32] * 20
        assert engine.warm_memory().used_bytes == 0


async def test_thrashing_names_the_budget_in_the_log(
    engine_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    @workflow(name="warm_memory.endless")
    async def endless() -> None:
        while perdure.now().year:
            await asyncio_turn()

    @task(name="warm_memory.turn")
    async def asyncio_turn() -> None:
        await asyncio.sleep(0)

    with caplog.at_level(logging.WARNING, "perdure.host"):
        async with opened(engine_url, Settings(warm_memory=20_000)) as engine:
            runs = await engine.start_many(endless() for _ in range(20))
            await until(
                lambda: any(
                    getattr(record, "event", "") == "memory_thrashing" for record in caplog.records
                )
            )
            assert engine.warm_memory().early_evictions > 0
            for run in runs:
                await run.cancel()
                await until_status(run, RunStatus.CANCELLED)


async def test_estimate_follows_what_a_program_keeps_of_large_payloads(engine_url: str) -> None:
    async with opened(engine_url) as engine:
        used = []
        for program, result in ((dropping, "go"), (keeping, "go 30")):
            run = await engine.start(program(30))
            await until_recorded(engine, run, InvokeCompleted, 30)
            await until(lambda: Probe(engine).host.dispatcher.is_quiet)
            used.append(engine.warm_memory().used_bytes)
            await run.signal(word, "go")
            assert await run.result(60) == result
        dropped, kept = used
        assert dropped < 15 * BLOB
        assert 25 * BLOB < kept < 45 * BLOB


def test_sync_engine_reports_its_memory() -> None:
    with SyncEngine("sqlite:///:memory:", settings=Settings(warm_memory=1000)) as engine:
        assert engine.start(doubling(2)).result() == 4
        memory = engine.warm_memory()
        assert (memory.runs, memory.used_bytes, memory.budget_bytes) == (0, 0, 1000)


async def test_memory_of_a_closed_engine_is_refused() -> None:
    engine = Engine("sqlite:///:memory:")
    with pytest.raises(perdure.PerdureError, match="open"):
        engine.warm_memory()
