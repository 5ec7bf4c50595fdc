"""Following a run that can't advance: readers of its journal and streams get the same error as `result`."""

from contextlib import suppress

import pytest

import perdure
from perdure import Engine, NotCommitted, RunDiverged, Signal, workflow
from tests.client.engines import opened, until_status

pytestmark = pytest.mark.asyncio

go = Signal("following.go", int)


@workflow(name="following.talks")
async def talks() -> int:
    perdure.stream("words").append("hello")
    return await go.receive()


def change_the_code() -> None:
    @workflow(name="following.talks")
    async def talks_of_time() -> int:
        perdure.now()
        return await go.receive()


async def test_the_journal_and_the_streams_of_a_parked_run_end_with_why(shared_url: str) -> None:
    async with opened(shared_url) as engine:
        run_id = (await engine.start(talks())).run_id
    change_the_code()
    async with opened(shared_url) as engine:
        run = engine.handle(run_id)
        words, entries = run.stream("words"), aiter(run.events())
        assert [(await anext(words)).step, (await anext(entries)).seq] == ["root", 0]
        assert (await anext(entries)).seq == 1
        for follow in (words, entries):
            with pytest.raises(RunDiverged, match="is parked: run-diverged"):
                await anext(follow)


async def test_the_stream_of_a_run_that_is_cancelled_while_parked_ends(shared_url: str) -> None:
    async with opened(shared_url) as engine:
        run_id = (await engine.start(talks())).run_id
    change_the_code()
    async with opened(shared_url) as engine:
        run = engine.handle(run_id)
        await until_status(run, perdure.RunStatus.DIVERGED)
        await run.cancel()
        assert len([chunk async for chunk in run.stream("words")]) == 1


async def test_a_stream_is_not_read_before_the_commit(engine: Engine) -> None:
    async with engine.transaction():
        run = await engine.start(talks())
        with pytest.raises(NotCommitted, match="stream 'words' of run"):
            run.stream("words")
    await run.signal(go, 1)
    assert len([chunk async for chunk in run.stream("words")]) == 1


async def test_stream_of_a_rolled_back_run_raises_not_committed(engine: Engine) -> None:
    with suppress(KeyError):
        async with engine.transaction():
            run = await engine.start(talks())
            raise KeyError
    with pytest.raises(NotCommitted, match="rolled back"):
        run.stream("words")
