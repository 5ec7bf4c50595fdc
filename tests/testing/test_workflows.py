"""What the explorer of programs does about tasks that last, and about hosts that it kills."""

import asyncio
import gc

import pytest

import perdure
from perdure import Retry, task, workflow
from perdure.testing import workflows
from perdure.testing.explorer import ScheduleFailed
from perdure.testing.workflows import explore_workflow


@task(name="exploring.echo")
async def echo(said: str) -> str:
    return said


@workflow(name="exploring.child")
async def child(said: str) -> str:
    return await echo(said)


@workflow(name="exploring.parent")
async def parent() -> list[str]:
    return list(await perdure.gather(child("a"), child("b"), echo("c")))


async def test_an_exploration_leaves_no_task_of_a_killed_host_behind(
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = asyncio.all_tasks()
    await explore_workflow(parent)
    gc.collect()
    assert [record.message for record in caplog.records if record.name == "asyncio"] == []
    assert asyncio.all_tasks() == before


@task(name="exploring.lasts", timeout=60)
async def lasts() -> None:
    await asyncio.Event().wait()


@workflow(name="exploring.waits")
async def waits() -> str:
    try:
        await lasts()
    except TimeoutError:
        return "too late"
    return "never"


async def test_a_task_that_takes_too_long_is_named_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(workflows, "LONGEST_S", 0.2)
    with pytest.raises(ScheduleFailed) as caught:
        await explore_workflow(waits)
    said = str(caught.value)
    assert "not over after 0.2 s, and these tasks still run: exploring.lasts (root.0)" in said
    assert "give them a short timeout there" in said
    assert "(no fault)" in said
    gc.collect()
    assert [record.message for record in caplog.records if record.name == "asyncio"] == []


@task(name="exploring.is_cut_short", timeout=0.01, retry=Retry(attempts=2, first=60))
async def is_cut_short() -> None:
    await asyncio.Event().wait()


@workflow(name="exploring.cuts_short")
async def cuts_short() -> str:
    try:
        await is_cut_short()
    except TimeoutError:
        return "too late"
    return "never"


async def test_a_task_that_ends_by_a_short_timeout_is_explored() -> None:
    def check(ended: workflows.Ended) -> None:
        assert ended.payload == b'"too late"'

    explored = await explore_workflow(cuts_short, check=check)
    assert "commit 3: crash after" in explored.faults
