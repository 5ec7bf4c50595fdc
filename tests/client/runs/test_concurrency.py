"""Concurrent branches: gather, first, and join sets."""

import asyncio
from typing import Any

import pytest

import perdure
from perdure import Engine, StepCancelled, task, workflow
from perdure.core.errors import InputError, JoinSetClosed
from perdure.core.journal import events as e
from perdure.core.messages import Message
from perdure.testing.probe import Probe
from tests.client.engines import ALWAYS_REPLAY, journal, opened, recorded

NOTHING: tuple[str, ...] = ()


class Unlucky(Exception):
    pass


@task(name="concurrency.echo")
async def echo(value: str, after: float = 0.0) -> str:
    await asyncio.sleep(after)
    return value


@task(name="concurrency.fail")
async def fail(what: str, after: float = 0.0) -> None:
    await asyncio.sleep(after)
    raise Unlucky(what)


async def test_gather_returns_results_in_the_order_given(engine: Engine) -> None:
    @workflow
    async def gathering() -> tuple[str, str, str]:
        async def branch() -> str:
            return await echo("branch")

        return await perdure.gather(echo("slow", 0.05), echo("quick"), branch())

    run = await engine.start(gathering())
    assert await run.result(60) == ("slow", "quick", "branch")


async def test_gather_of_nothing_is_nothing(engine: Engine) -> None:
    @workflow
    async def gathering() -> list[str]:
        return list(await perdure.gather(*map(echo, NOTHING)))

    assert await (await engine.start(gathering())).result(60) == []


async def test_gather_runs_its_members_at_once(engine: Engine) -> None:
    meeting = asyncio.Barrier(3)

    @task
    async def meet() -> None:
        async with asyncio.timeout(60):
            await meeting.wait()

    @workflow
    async def gathering() -> str:
        async def branch() -> None:
            await meet()

        await perdure.gather(meet(), branch(), branch())
        return "met"

    assert await (await engine.start(gathering())).result(60) == "met"


async def test_gather_raises_the_first_failure_in_order_once_all_are_over(
    engine: Engine,
) -> None:
    finished: list[str] = []

    @task
    async def finishing() -> None:
        await asyncio.sleep(0.05)
        finished.append("yes")

    @workflow
    async def gathering() -> None:
        await perdure.gather(finishing(), fail("late", 0.1), fail("early"))

    run = await engine.start(gathering())
    with pytest.raises(Unlucky, match="late"):
        await run.result(60)
    assert finished == ["yes"]


async def test_gather_returns_exceptions_where_it_is_asked_to(engine: Engine) -> None:
    @workflow
    async def gathering() -> list[str]:
        async def branch() -> str:
            await fail("in a branch")
            return ""

        found = await perdure.gather(
            echo("fine"), fail("in a task"), branch(), return_exceptions=True
        )
        return [str(each) for each in found]

    run = await engine.start(gathering())
    assert await run.result(60) == ["fine", "in a task", "in a branch"]


async def test_gathers_nest(engine: Engine) -> None:
    @workflow
    async def gathering() -> list[list[str]]:
        async def row(name: str) -> list[str]:
            return list(await perdure.gather(*(echo(f"{name}{column}") for column in range(3))))

        return list(await perdure.gather(*(row(name) for name in "abc")))

    run = await engine.start(gathering())
    assert await run.result(60) == [[f"{name}{n}" for n in range(3)] for name in "abc"]


@pytest.mark.parametrize("replays", [False, True])
async def test_a_workflow_may_have_200_branches(engine_url: str, replays: bool) -> None:
    @workflow
    async def wide() -> int:
        async def branch(number: int) -> int:
            await echo(str(number))
            return int(await echo(str(number)))

        return sum(await perdure.gather(*(branch(number) for number in range(200))))

    async with opened(engine_url, ALWAYS_REPLAY if replays else None) as engine:
        assert await (await engine.start(wide())).result(60) == sum(range(200))


async def test_due_messages_are_read_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    @workflow
    async def child(number: int) -> int:
        return number

    @workflow
    async def parent() -> int:
        return len(await perdure.gather(*map(child, range(1_200))))

    async with opened("sqlite:///:memory:") as engine:
        store, asked = Probe(engine).store, 0
        due_messages = store.due_messages

        async def counted(*args: Any) -> list[Message]:
            nonlocal asked
            asked += 1
            return await due_messages(*args)

        monkeypatch.setattr(store, "due_messages", counted)
        assert await (await engine.start(parent())).result(60) == 1_200
        assert asked < 40


async def test_first_returns_whatever_is_over_first(engine: Engine) -> None:
    @workflow
    async def racing() -> str:
        return await perdure.first(echo("slow", 5), echo("quick"))

    assert await (await engine.start(racing())).result(60) == "quick"


async def test_first_raises_if_its_earliest_branch_failed(engine: Engine) -> None:
    @workflow
    async def racing() -> str | None:
        return await perdure.first(echo("slow", 5), fail("at once"))

    run = await engine.start(racing())
    with pytest.raises(Unlucky, match="at once"):
        await run.result(60)


async def test_first_cancels_the_body_of_a_losing_task(engine: Engine) -> None:
    cancelled: list[str] = []

    @task
    async def losing() -> None:
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            cancelled.append("losing")
            raise

    @workflow
    async def racing() -> str | None:
        return await perdure.first(losing(), echo("winner", 0.1))

    run = await engine.start(racing())
    assert await run.result(60) == "winner"
    await asyncio.sleep(0)
    assert cancelled == ["losing"]
    outcomes = await recorded(engine, run, e.InvokeCompleted)
    assert {each.promise_id: each.ok for each in outcomes} == {"root.0": False, "root.1": True}


async def test_first_cancels_a_losing_timer(engine: Engine) -> None:
    @workflow
    async def racing() -> str | None:
        return await perdure.first(echo("winner"), perdure.sleep(3600))

    run = await engine.start(racing())
    assert await run.result(60) == "winner"
    (skipped,) = await recorded(engine, run, e.StepSkipped)
    assert (skipped.promise_id, skipped.reason) == ("root.1", "cancelled")


async def test_a_losing_branch_cleans_up_durably_before_first_returns(engine: Engine) -> None:
    order: list[str] = []

    @task
    async def note(what: str) -> None:
        await asyncio.sleep(0.01)
        order.append(what)

    @workflow
    async def racing() -> str:
        async def losing() -> str:
            try:
                await perdure.sleep(3600)
            finally:
                await note("cleaned up")
                await note("and again")
            return "loser"

        won = await perdure.first(losing(), echo("winner"))
        await note("first returned")
        return won

    run = await engine.start(racing())
    assert await run.result(60) == "winner"
    assert order == ["cleaned up", "and again", "first returned"]


async def test_a_losing_branch_that_fails_while_it_cleans_up_does_not_disturb_the_winner(
    engine: Engine,
) -> None:
    @workflow
    async def racing() -> str:
        async def losing() -> str:
            try:
                await perdure.sleep(3600)
            finally:
                await fail("in the clean-up")
            return "loser"

        return await perdure.first(losing(), echo("winner"))

    assert await (await engine.start(racing())).result(60) == "winner"


async def test_a_losing_branch_takes_its_own_branches_down_with_it(engine: Engine) -> None:
    order: list[str] = []

    @task
    async def note(what: str) -> None:
        order.append(what)

    @workflow
    async def racing() -> str:
        async def inner(name: str) -> str:
            try:
                await perdure.sleep(3600)
            finally:
                await note(name)
            return ""

        async def losing() -> str:
            try:
                await perdure.gather(inner("left"), inner("right"))
            finally:
                await note("outer")
            return ""

        return await perdure.first(losing(), echo("winner"))

    assert await (await engine.start(racing())).result(60) == "winner"
    assert sorted(order[:2]) == ["left", "right"]
    assert order[2:] == ["outer"]


async def test_the_result_of_a_losing_branch_is_step_cancelled(engine: Engine) -> None:
    @workflow
    async def racing() -> str:
        members = perdure.join_set()

        async def inner() -> None:
            await perdure.sleep(3600)

        async def outer() -> str:
            try:
                return str(await perdure.gather(inner(), return_exceptions=True))
            finally:
                await echo("cleaned")

        members.submit(echo("unrelated"))
        await members.next()
        return await perdure.first(outer(), echo("winner", 0.1))

    run = await engine.start(racing())
    assert await run.result(60) == "winner"
    failures = [each for each in await recorded(engine, run, e.InvokeCompleted) if not each.ok]
    assert [each.promise_id for each in failures] == ["root.2.0", "root.2"]


async def test_first_of_nothing_is_refused(engine: Engine) -> None:
    @workflow
    async def racing() -> str:
        return await perdure.first(*map(echo, NOTHING))

    run = await engine.start(racing())
    with pytest.raises(InputError, match="at least one"):
        await run.result(60)


async def test_a_join_set_gives_results_as_they_come(engine: Engine) -> None:
    @workflow
    async def joining() -> list[str]:
        async def branch() -> str:
            return await echo("branch", 0.2)

        members = perdure.join_set()
        members.submit(echo("slow", 0.4))
        members.submit(branch())
        members.submit(echo("quick"))
        return [each async for each in members]

    run = await engine.start(joining())
    assert await run.result(60) == ["quick", "branch", "slow"]
    consumed = [each.promise_id for each in await recorded(engine, run, e.JoinSetAwaited)]
    assert consumed == ["root.3", "root.2", "root.1"]


async def test_a_join_set_takes_timers_too(engine: Engine) -> None:
    @workflow
    async def joining() -> list[str | None]:
        members = perdure.join_set()
        members.submit(perdure.sleep(0.3))
        members.submit(echo("quick"))
        return [each async for each in members]

    assert await (await engine.start(joining())).result(60) == ["quick", None]


async def test_join_set_raises_the_failure_of_a_member_and_continues(engine: Engine) -> None:
    @workflow
    async def joining() -> list[str]:
        members = perdure.join_set()
        members.submit(fail("member"))
        members.submit(echo("fine", 0.2))
        got = []
        while len(members):
            try:
                got.append(str(await members.next()))
            except Unlucky as error:
                got.append(f"raised {error}")
        return got

    assert await (await engine.start(joining())).result(60) == ["raised member", "fine"]


async def test_a_join_set_is_closed_by_its_first_await(engine: Engine) -> None:
    @workflow
    async def joining() -> None:
        members = perdure.join_set()
        members.submit(echo("one"))
        await members.next()
        members.submit(echo("two"))

    run = await engine.start(joining())
    with pytest.raises(JoinSetClosed):
        await run.result(60)


async def test_unawaited_members_are_cancelled_when_the_workflow_ends(
    engine: Engine,
) -> None:
    @workflow
    async def joining() -> str:
        members = perdure.join_set()
        members.submit(echo("slow", 10))
        members.submit(echo("quick"))
        return str(await members.next())

    run = await engine.start(joining())
    assert await run.result(60) == "quick"
    outcomes = {each.promise_id: each.ok for each in await recorded(engine, run, e.InvokeCompleted)}
    assert outcomes == {"root.1": False, "root.2": True}


async def test_the_journal_never_waits_for_a_branch(engine: Engine) -> None:
    @workflow
    async def gathering() -> None:
        async def branch() -> None:
            await echo("inside")

        await perdure.gather(branch(), branch())

    run = await engine.start(gathering())
    await run.result(60)
    branches = {
        each.promise_id
        for each in await recorded(engine, run, e.InvokeScheduled)
        if each.kind is e.InvokeKind.BRANCH
    }
    assert branches == {"root.0", "root.1"}
    for awaiting in await recorded(engine, run, e.ExecutionAwaiting):
        assert not branches & set(awaiting.waiting_on)


async def test_a_step_that_lost_raises_step_cancelled_where_it_is_asked_for_later(
    engine: Engine,
) -> None:
    @workflow
    async def racing() -> str:
        child = await perdure.start(forever())
        await child.cancel()
        try:
            await child.result()
        except StepCancelled:
            return "cancelled"
        return ""

    @workflow
    async def forever() -> None:
        await perdure.sleep(3600)

    assert await (await engine.start(racing())).result(60) == "cancelled"


async def test_branches_that_replay_take_the_same_turns(engine_url: str) -> None:
    turns: list[list[str]] = []

    @workflow
    async def interleaving() -> None:
        mine: list[str] = []
        turns.append(mine)

        async def branch(name: str, after: float) -> None:
            for number in range(3):
                await echo(name, after)
                mine.append(f"{name}{number}")

        await perdure.gather(branch("a", 0.01), branch("b", 0.015), branch("c", 0))

    async with opened(engine_url, ALWAYS_REPLAY) as engine:
        run = await engine.start(interleaving())
        await run.result(60)
        assert await journal(engine, run)
    last = turns[-1]
    assert len(last) == 9
    assert all(last[: len(mine)] == mine for mine in turns)
