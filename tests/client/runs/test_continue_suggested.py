"""`perdure.info().continue_suggested`: true from the moment when the journal of a run is long, in every replay too."""

import msgspec

import perdure
from perdure import Engine, Settings, Signal, task, workflow
from perdure.core.journal import events as e
from perdure.core.replay.patching import CONTINUE, marker_of
from tests.client.engines import ALWAYS_REPLAY, assert_sound, journal, opened, until_recorded

go = Signal("suggested.go", str)
MARKER = marker_of(CONTINUE)


@task(name="suggested.note")
async def note(text: str) -> str:
    assert not perdure.info().continue_suggested
    return text


@workflow(name="suggested.counting")
async def counting(left: int, runs: list[int]) -> list[int]:
    """How many steps each run of the chain did before it was advised to continue."""
    done = 0
    while left and not perdure.info().continue_suggested:
        await note("x")
        left, done = left - 1, done + 1
    if left:
        await perdure.continue_as_new(counting(left, [*runs, done]))
    return [*runs, done]


@workflow(name="suggested.noting")
async def noting(text: str, times: int) -> list[bool]:
    answers = []
    for _ in range(times):
        await note(text)
        answers.append(perdure.info().continue_suggested)
    await go.receive()
    return [*answers, perdure.info().continue_suggested]


def few_steps(settings: Settings | None) -> Settings:
    return msgspec.structs.replace(settings or Settings(), continue_after_steps=4)


async def test_a_run_is_advised_to_continue_after_so_many_steps(
    place: tuple[str, Settings | None],
) -> None:
    url, settings = place
    async with opened(url, few_steps(settings)) as engine:
        run = await engine.start(counting(10, []))
        assert await run.result(60) == [4, 4, 2]
        for run_id in await run.runs():
            events = await journal(engine, engine.handle(run_id))
            assert events.count(MARKER) <= 1


async def test_the_advice_counts_bytes_too(engine_url: str) -> None:
    async with opened(engine_url, Settings(continue_after_bytes=100_000)) as engine:
        run = await engine.start(noting("x" * 20_000, 4))
        await run.signal(go, "")
        assert await run.result(60) == [False, False, True, True, True]
        assert (await journal(engine, run)).count(MARKER) == 1


async def test_the_advice_stays_when_settings_and_processes_change(shared_url: str) -> None:
    async with Engine(shared_url, settings=Settings(continue_after_steps=2)) as engine:
        run = await engine.start(noting("x", 3))
        await until_recorded(engine, run, e.InvokeCompleted, 3)
    async with Engine(shared_url, settings=ALWAYS_REPLAY) as engine:
        again = engine.handle(run.run_id)
        await again.signal(go, "")
        assert await again.result(60) == [False, True, True, True]
        await assert_sound(engine)


async def test_short_runs_record_nothing(engine_url: str) -> None:
    async with opened(
        engine_url, Settings(continue_after_steps=0, continue_after_bytes=0)
    ) as engine:
        run = await engine.start(noting("x", 6))
        await run.signal(go, "")
        assert await run.result(60) == [False] * 7
        assert MARKER not in await journal(engine, run)
