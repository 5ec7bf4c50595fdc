"""Child runs: awaited, started, signalled, cancelled, or left to run alone."""

import asyncio

import pytest

import perdure
from perdure import Engine, RunCancelled, RunStatus, Signal, TaskFailed, task, workflow
from perdure.core.journal import events as e
from tests.client.engines import (
    assert_cancelled,
    opened,
    recorded,
    store_of,
    until_recorded,
    until_status,
)

word = Signal("word", str)


class Unlucky(Exception):
    pass


@task(name="children.echo")
async def echo(value: str) -> str:
    return value


@workflow(name="children.shouting")
async def shouting(said: str) -> str:
    return (await echo(said)).upper()


@workflow(name="children.listening")
async def listening() -> str:
    return await word.receive()


@workflow(name="children.failing")
async def failing() -> None:
    await echo("before")
    raise Unlucky("in the child")


async def test_a_workflow_awaits_another_as_a_run_of_its_own(engine: Engine) -> None:
    @workflow
    async def parent() -> str:
        return await shouting("hello")

    run = await engine.start(parent())
    assert await run.result(60) == "HELLO"
    assert len([books async for books in store_of(engine).books()]) == 2


async def test_children_may_be_gathered(engine: Engine) -> None:
    @workflow
    async def parent() -> list[str]:
        return list(await perdure.gather(*(shouting(each) for each in "abc")))

    assert await (await engine.start(parent())).result(60) == ["A", "B", "C"]


async def test_children_may_have_children(engine: Engine) -> None:
    @workflow
    async def nesting(depth: int) -> int:
        return depth if depth == 5 else await nesting(depth + 1)

    assert await (await engine.start(nesting(0))).result(60) == 5


async def test_a_child_that_fails_raises_its_exception_in_the_parent(engine: Engine) -> None:
    @workflow
    async def parent() -> list[str]:
        try:
            await failing()
        except Unlucky as error:
            return [str(error), *error.__notes__]
        return []

    said, note = await (await engine.start(parent())).result(60)
    assert said == "in the child"
    assert "run 'children.failing' (step root.0) failed with:" in note


async def test_a_child_that_is_cancelled_raises_run_cancelled_in_the_parent(
    engine: Engine,
) -> None:
    @workflow
    async def parent() -> tuple[str, str]:
        child = await perdure.start(listening())
        perdure.publish("child", child.run_id)
        try:
            return "", await child.result()
        except RunCancelled as error:
            return error.reason, str(error)

    run = await engine.start(parent())
    child = (await run.published())["child"]
    await engine.handle(child).cancel("enough")
    assert await run.result(60) == ("enough", f"run {child!r} was cancelled: enough")


async def test_started_child_runs_beside_its_parent(engine: Engine) -> None:
    @workflow
    async def parent() -> str:
        child = await perdure.start(listening())
        await echo("meanwhile")
        child.signal(word, "from the parent")
        return await child.result()

    assert await (await engine.start(parent())).result(60) == "from the parent"


async def test_a_childs_result_may_be_asked_for_after_it_is_over(engine: Engine) -> None:
    @workflow
    async def parent() -> tuple[str, str]:
        child = await perdure.start(shouting("early"))
        await perdure.sleep(0.1)
        return await child.result(), await child.result()

    assert await (await engine.start(parent())).result(60) == ("EARLY", "EARLY")


async def test_a_signal_of_the_parent_reaches_the_child_once_though_the_parent_is_replayed(
    engine: Engine,
) -> None:
    @workflow
    async def counting() -> list[str]:
        got = [await word.receive()]
        try:
            got.append(await word.receive(timeout=0.1))
        except TimeoutError:
            got.append("no more")
        return got

    @workflow
    async def parent() -> list[str]:
        child = await perdure.start(counting())
        child.signal(word, "once")
        await echo("one")
        await echo("two")
        return await child.result()

    assert await (await engine.start(parent())).result(60) == ["once", "no more"]


async def test_signals_of_the_parent_are_heard_in_the_order_in_which_they_were_sent(
    engine: Engine,
) -> None:
    words = [f"{number}" for number in range(12)]

    @workflow
    async def hearing() -> list[str]:
        await perdure.sleep(0.05)  # so that all of them wait for it
        return [await word.receive() for _ in words]

    @workflow
    async def parent() -> list[str]:
        child = await perdure.start(hearing())
        for each in words:
            child.signal(word, each)
        return await child.result()

    assert await (await engine.start(parent())).result(60) == words


async def test_a_child_that_its_parent_cancels_is_cancelled(engine: Engine) -> None:
    @workflow
    async def parent() -> str:
        child = await perdure.start(listening())
        await child.cancel()
        return child.run_id

    run = await engine.start(parent())
    child = engine.handle(await run.result(60))
    why = f"its parent '{run.run_id}' no longer needs it"
    with pytest.raises(RunCancelled, match=why):
        await child.result(60)


async def test_unawaited_child_outlives_its_parent(engine: Engine) -> None:
    @workflow
    async def parent() -> str:
        return (await perdure.start(listening())).run_id

    run = await engine.start(parent())
    child = engine.handle(await run.result(60))
    assert await child.status() is RunStatus.BLOCKED
    await child.signal(word, "alone")
    assert await child.result(60) == "alone"
    (skipped,) = await recorded(engine, run, e.StepSkipped)
    assert (skipped.promise_id, skipped.reason) == ("root.0", "detached")


async def test_an_awaited_child_that_loses_a_race_is_cancelled(engine: Engine) -> None:
    @workflow
    async def parent() -> str:
        return await perdure.first(listening(), echo("winner"))

    run = await engine.start(parent())
    assert await run.result(60) == "winner"
    children = [
        books.run_id async for books in store_of(engine).books() if books.run_id != run.run_id
    ]
    with pytest.raises(RunCancelled):
        await engine.handle(children[0]).result(60)


async def test_cancelling_the_parent_cancels_its_children_and_theirs(engine: Engine) -> None:
    @workflow
    async def middle() -> str:
        return await listening()

    @workflow
    async def parent() -> tuple[str, str]:
        beside = await perdure.start(listening())
        return await perdure.gather(middle(), beside.result())

    run = await engine.start(parent())
    await until_status(run, RunStatus.BLOCKED)
    await run.cancel("all of it")
    await assert_cancelled(run)
    ids = [books.run_id async for books in store_of(engine).books()]
    assert len(ids) == 4
    for run_id in ids:
        with pytest.raises(RunCancelled, match=f"run '{run_id}' was cancelled: all of it"):
            await engine.handle(run_id).result(60)


async def test_child_resumes_in_the_next_engine_and_reports_to_its_parent(shared_url: str) -> None:
    @workflow
    async def parent() -> str:
        return "child said " + await listening()

    async with opened(shared_url) as engine:
        run = await engine.start(parent())
        (child_id,) = [
            books.run_id async for books in store_of(engine).books() if books.run_id != run.run_id
        ]
    async with opened(shared_url) as engine:
        await engine.handle(child_id).signal(word, "yes")
        assert await engine.handle(run.run_id).result(60) == "child said yes"


async def test_child_reports_to_a_parent_of_another_engine(shared_url: str) -> None:
    @workflow
    async def parent() -> str:
        child = await perdure.start(listening())
        perdure.publish("child", child.run_id)
        return await child.result()

    async with opened(shared_url) as owner, opened(shared_url) as other:
        run = await owner.start(parent())
        child = other.handle((await run.published())["child"])
        await child.signal(word, "across")
        assert await run.result(60) == "across"


async def test_a_failure_of_a_child_that_cant_be_rebuilt_is_task_failed(engine: Engine) -> None:
    class Hidden(Exception):
        pass

    @workflow
    async def child() -> None:
        raise Hidden("deep down")

    @workflow
    async def parent() -> str:
        try:
            await child()
        except TaskFailed as error:
            return error.message
        return ""

    assert await (await engine.start(parent())).result(60) == "deep down"


async def test_a_childs_first_step_is_durable_with_its_parents_turn(engine_url: str) -> None:
    @workflow
    async def parent() -> str:
        return await shouting("at once")

    async with opened(engine_url) as engine:
        run = await engine.start(parent())
        started = await until_recorded(engine, run, e.InvokeStarted)
        assert started.promise_id == "root.0"
        books = [books async for books in store_of(engine).books()]
        assert len(books) == 2
        assert await run.result(60) == "AT ONCE"
        await asyncio.sleep(0)
