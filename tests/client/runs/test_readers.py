"""Readers of histories: a page deep in a long history does not read the entries before it each time."""

from typing import Any

import pytest

from perdure import Engine, task, workflow
from perdure.core.runs.contract_event import ContractEvent
from perdure.host.runs import readers
from perdure.host.runs.readers import Readers
from perdure.testing.probe import Probe


@task(name="readers.one")
async def one(n: int) -> int:
    return n


@workflow(name="readers.long")
async def long(steps: int) -> None:
    for n in range(steps):
        await one(n)


async def page(run: Any, first: int, count: int) -> list[ContractEvent]:
    found = []
    history = run.history(first)
    async for event in history:
        found.append(event)
        if len(found) == count:
            break
    await history.aclose()
    return found


@pytest.fixture(autouse=True)
def _short_stride(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "STRIDE", 400)


async def test_deep_page_reads_a_bounded_part(
    engine_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Engine(engine_url) as engine:
        run = await engine.start(long(400))
        await run.result()
        whole = [event async for event in run.history()]
        assert len(whole) > 2000
        store, read = Probe(engine).store, 0
        entries = store.entries

        async def counted(*args: Any) -> Any:
            nonlocal read
            found = await entries(*args)
            read += len(found)
            return found

        monkeypatch.setattr(store, "entries", counted)
        for first in (1_900, 1_500, 1_901):
            read = 0
            assert await page(run, first, 20) == whole[first : first + 20]
            assert read <= 400 + 400, (
                read
            )  # the stride, and the pages of 200 that the events are in


async def test_readers_stay_within_their_limit(
    engine_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "MAX_SIZE", 500)
    async with Engine(engine_url) as engine:
        runs = [await engine.start(long(200)) for _ in range(4)]
        for run in runs:
            await run.result()
            whole = [event async for event in run.history()]
            assert await page(run, 900, 5) == whole[900:905]
        kept: Readers = Probe(engine).host.readers
        assert 0 < kept.size <= 500
