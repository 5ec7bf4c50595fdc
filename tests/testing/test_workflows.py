"""The explorer of programs: tasks that take long, killed hosts, and expected endings."""

import asyncio
import gc
from typing import Any

import pytest

import perdure
from perdure import Handle, Retry, Signal, Transaction, task, workflow
from perdure.core.journal.events import TimerFired
from perdure.core.journal.state import Status
from perdure.testing import After, Ended, Tables, explore_workflow, workflows
from perdure.testing.explorer import ScheduleFailed
from perdure.testing.probe import Probe


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


@workflow(name="exploring.fails")
async def fails() -> None:
    raise ValueError("always")


async def test_workflow_that_always_fails_fails_the_exploration() -> None:
    with pytest.raises(ScheduleFailed, match="must end 'completed'") as caught:
        await explore_workflow(fails)
    assert "always" in str(caught.value)
    assert "pass check='failed'" in str(caught.value)


async def test_expected_failure_passes_and_is_named() -> None:
    explored = await explore_workflow(fails, check="failed")
    (ending,) = explored.endings
    assert ending.startswith("failed")
    assert "always" in str(explored)


async def test_completed_run_fails_the_exploration_if_it_must_fail() -> None:
    with pytest.raises(ScheduleFailed, match="must end 'failed'"):
        await explore_workflow(parent, check="failed")


async def test_impossible_ending_is_refused() -> None:
    with pytest.raises(perdure.InputError, match="'completed', 'failed', 'cancelled'"):
        await explore_workflow(parent, check="passed")


def test_what_a_check_gets_is_decoded() -> None:
    assert Ended(Status.COMPLETED, b"[1,2]").value == [1, 2]
    assert Ended(Status.CANCELLED, None).value is None


tries: list[str] = []


@task(name="exploring.streams", timeout=5, retry=Retry(attempts=4))
async def streams() -> str:
    tries.append("again")
    perdure.stream("said").append("a")
    await asyncio.sleep(0)
    if len(tries) % 2:
        raise ValueError("once")
    return "done"


@workflow(name="exploring.hears")
async def hears() -> str:
    return await streams()


async def test_a_task_with_a_timeout_that_streams_awaits_and_fails_once_is_explored() -> None:
    def check(ended: Ended) -> None:
        assert ended.value == "done"

    explored = await explore_workflow(hears, check=check, modes=["warm"])
    assert "commit 2: crash before" in explored.faults


@task(name="exploring.key")
async def key() -> str:
    return perdure.key()


@workflow(name="exploring.keys")
async def keys() -> str:
    return await key()


@workflow(name="exploring.childrens_keys")
async def childrens_keys() -> list[str]:
    return [await key(), await keys()]


@pytest.mark.parametrize("program", [keys, childrens_keys], ids=lambda each: each.name)
async def test_keys_of_steps_are_the_same_under_every_schedule(program: Any) -> None:
    explored = await explore_workflow(program)
    assert "commit 1: crash before" in explored.faults
    assert len(explored.endings) == 1


approval = Signal("exploring.approval", bool)


@workflow(name="exploring.asks")
async def asks() -> bool:
    await perdure.sleep(3600)
    return await approval.receive(timeout=86400)


async def approve(run: Handle[Any]) -> None:
    await run.signal(approval, True)


async def test_a_script_after_more_commits_than_there_are_comes_before_the_timeout() -> None:
    explored = await explore_workflow(asks, script=After(99, approve))
    assert explored.endings == {"completed true"}


async def test_a_script_after_some_commits_comes_after_a_sleep() -> None:
    slept: list[int] = []

    async def look(run: Handle[Any]) -> None:
        journal = await Probe.host_of(run).context.store.entries(run.run_id)
        slept.append(sum(isinstance(entry.event, TimerFired) for entry in journal))
        await run.signal(approval, True)

    await explore_workflow(asks, script=After(99, look), max_faults=0)
    assert slept == [1, 1, 1]


@task(name="exploring.order", transactional=True)
async def order(tx: Transaction, number: int) -> int:
    await tx.execute("INSERT INTO orders VALUES ($1)", number)
    return number


@workflow(name="exploring.orders")
async def orders() -> list[int]:
    return [await order(1), await order(2)]


async def two_orders(tx: Transaction) -> None:
    assert await tx.fetch_value("SELECT group_concat(number) FROM orders") == "1,2"


async def no_orders(tx: Transaction) -> None:
    assert await tx.fetch_value("SELECT count(*) FROM orders") == 0, "there are orders"


async def test_tables_of_ones_own_are_made_and_looked_at() -> None:
    tables = Tables("CREATE TABLE orders (number INTEGER)", check=two_orders)
    explored = await explore_workflow(orders, open_store=tables)
    assert any(fault.startswith("a transaction: ") for fault in explored.faults)


async def test_rows_that_are_wrong_fail_the_schedule() -> None:
    tables = Tables("CREATE TABLE orders (number INTEGER)", check=no_orders)
    with pytest.raises(ScheduleFailed, match="there are orders"):
        await explore_workflow(orders, open_store=tables)
