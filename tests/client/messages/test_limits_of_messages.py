"""The limits of acts and signals, as settings."""

import pytest

from perdure import Engine, Settings, Signal, TooManyActs, workflow
from perdure.core.errors import PayloadTooLarge
from tests.client.engines import opened

word = Signal("limits.word", str)


@workflow(name="limits.listening")
async def listening() -> str:
    return await word.receive()


async def test_a_signal_over_the_limit_is_refused(engine_url: str) -> None:
    async with opened(engine_url, Settings(max_signal_bytes=1000)) as engine:
        run = await engine.start(listening())
        with pytest.raises(PayloadTooLarge, match="over the limit of 1,000"):
            await run.signal(word, "x" * 1000)
        with pytest.raises(PayloadTooLarge, match="over the limit of 1,000"):
            await engine.send("limits.topic", "key", "x" * 1000)
        await run.signal(word, "x" * 900)
        assert await run.result(60) == "x" * 900


async def test_acts_over_the_limits_are_refused(engine_url: str) -> None:
    settings = Settings(acts_per_minute=3, max_act_bytes=2000)
    async with opened(engine_url, settings) as engine:
        run = await engine.start(listening())
        with pytest.raises(PayloadTooLarge, match="over the limit of 2,000"):
            await run.pause("x" * 1990)
        decisions = [await (await run.resume()).decision(60) for _ in range(4)]
        assert [decision.code for decision in decisions][-1] == "RATE_LIMITED"
        assert "RATE_LIMITED" not in [decision.code for decision in decisions[:3]]
        await run.signal(word, "y")
        assert await run.result(60) == "y"


async def test_acts_that_wait_for_a_host_are_limited_too(shared_url: str) -> None:
    settings = Settings(acts_per_minute=2)
    async with Engine(shared_url, hosts=False, settings=settings) as engine:
        run = await engine.start(listening())
        for _ in range(2):
            await run.pause()
        with pytest.raises(TooManyActs):
            await run.pause()
