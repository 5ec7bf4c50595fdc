"""The garbage collector is as it was after a pause, whatever happened in it."""

import asyncio
import gc

import pytest

import perdure
from perdure import task, workflow
from perdure.store.commit.committer import CollectorPause
from tests.client.engines import opened


def test_collector_does_not_start_inside() -> None:
    with CollectorPause():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_collector_starts_again_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), CollectorPause():
        _ = 1 / 0
    assert gc.isenabled()


def test_collector_that_the_program_has_disabled_stays_disabled() -> None:
    gc.disable()
    try:
        with CollectorPause(), CollectorPause():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()


async def test_tasks_run_with_the_collector_enabled() -> None:
    """What a task allocates, however long it takes, is collected as in any program."""
    seen: list[bool] = []

    @task
    async def looks() -> None:
        seen.append(gc.isenabled())
        await asyncio.sleep(0)
        seen.append(gc.isenabled())

    @workflow
    async def two() -> None:
        await perdure.gather(looks(), looks())

    async with opened("sqlite:///:memory:") as engine:
        await (await engine.start(two())).result(60)
    assert seen == [True] * 4
    assert gc.isenabled()
