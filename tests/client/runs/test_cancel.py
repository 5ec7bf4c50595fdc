"""Cancellation: the run gets the request, cleans up with durable steps, and ends."""

import asyncio

import pytest

import perdure
from perdure import (
    Cancelled,
    Engine,
    Retry,
    RunCancelled,
    RunClosed,
    RunStatus,
    Signal,
    task,
    workflow,
)
from perdure.core.journal import events as e
from tests.client.engines import (
    ALWAYS_REPLAY,
    assert_cancelled,
    journal,
    opened,
    recorded,
    store_of,
    until,
    until_recorded,
    until_status,
)

word = Signal("word", str)
done: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    done.clear()


@task(name="cancel.note")
async def note(what: str) -> None:
    await asyncio.sleep(0.01)
    done.append(what)


@workflow(name="cancel.sleeping")
async def sleeping() -> None:
    await perdure.sleep(3600)


@workflow(name="cancel.refunding")
async def refunding() -> None:
    """Cleans up when a signal comes."""
    try:
        await perdure.sleep(3600)
    finally:
        await word.receive()
        await note("refunded")


async def test_a_cancelled_run_has_no_result(engine: Engine) -> None:
    run = await engine.start(sleeping())
    await run.cancel("not needed")
    text = f"^run '{run.run_id}' was cancelled: not needed$"
    with pytest.raises(RunCancelled, match=text) as caught:
        await run.result(60)
    assert caught.value.reason == "not needed"
    assert await run.status() is RunStatus.CANCELLED
    (asked,) = await recorded(engine, run, e.CancelRequested)
    assert asked.reason == "not needed"


async def test_cancel_reason_survives_restart(shared_url: str) -> None:
    async with opened(shared_url) as engine:
        run = await engine.start(sleeping())
        other = await engine.start(sleeping())
        await run.cancel("not needed")
        await other.cancel()
        await until_status(run, RunStatus.CANCELLED)
        await until_status(other, RunStatus.CANCELLED)
    async with opened(shared_url) as engine:
        with pytest.raises(RunCancelled, match=r"was cancelled: not needed$"):
            await engine.handle(run.run_id).result(60)
        with pytest.raises(RunCancelled, match=r"was cancelled: it has no result$") as caught:
            await engine.handle(other.run_id).result(60)
        assert caught.value.reason == ""


async def test_a_run_is_cancelling_while_it_cleans_up(engine: Engine) -> None:
    run = await engine.start(refunding())
    await run.cancel()
    await until_status(run, RunStatus.CANCELLING)
    assert done == []
    await run.signal(word, "go on")
    await assert_cancelled(run)
    assert done == ["refunded"]


async def test_clean_up_runs_once_though_the_run_leaves_memory_at_every_wait(
    engine_url: str,
) -> None:
    @workflow
    async def waiting() -> None:
        try:
            await note("charged")
            await perdure.sleep(3600)
        finally:
            await note("refunded")
            await perdure.sleep(0.02)
            await note("told")

    async with opened(engine_url, ALWAYS_REPLAY) as engine:
        run = await engine.start(waiting())
        await until_recorded(engine, run, e.TimerScheduled)
        await run.cancel()
        await assert_cancelled(run)
    assert done == ["charged", "refunded", "told"]


async def test_clean_up_with_branches_leaves_memory_without_a_trace(engine_url: str) -> None:
    @workflow
    async def waiting() -> None:
        async def undo(what: str) -> None:
            await note(what)

        try:
            await note("charged")
            await perdure.sleep(3600)
        finally:
            await perdure.gather(undo("one"), undo("two"), note("three"))

    async with opened(engine_url, ALWAYS_REPLAY) as engine:
        run = await engine.start(waiting())
        await until_recorded(engine, run, e.TimerScheduled)
        await run.cancel()
        await assert_cancelled(run)
    assert done[0] == "charged"
    assert sorted(done[1:]) == ["one", "three", "two"]


async def test_clean_up_continues_in_the_next_engine(shared_url: str) -> None:
    @workflow
    async def waiting() -> None:
        try:
            await perdure.sleep(3600)
        finally:
            await note("refunded")
            await perdure.sleep(0.2)
            await note("told")

    async with opened(shared_url) as engine:
        run = await engine.start(waiting())
        await run.cancel()
        await until_recorded(engine, run, e.TimerScheduled, 2)
    async with opened(shared_url) as engine:
        with pytest.raises(RunCancelled):
            await engine.handle(run.run_id).result(60)
    assert done == ["refunded", "told"]


async def test_except_exception_does_not_swallow_a_cancellation(engine: Engine) -> None:
    @workflow
    async def waiting() -> str:
        try:
            await perdure.sleep(3600)
        except Exception:
            return "swallowed"
        return "slept"

    run = await engine.start(waiting())
    await run.cancel()
    await assert_cancelled(run)


async def test_a_workflow_that_catches_cancelled_and_returns_is_completed(
    engine: Engine,
) -> None:
    @workflow
    async def waiting() -> str:
        try:
            await perdure.sleep(3600)
        except Cancelled as cancelled:
            await note("saved")
            return f"saved what there was: {cancelled}"
        return "slept"

    run = await engine.start(waiting())
    await run.cancel("hurry")
    assert await run.result(60) == "saved what there was: hurry"
    assert await run.status() is RunStatus.COMPLETED


async def test_a_clean_up_that_fails_fails_the_run(engine: Engine) -> None:
    @workflow
    async def waiting() -> None:
        try:
            await perdure.sleep(3600)
        finally:
            raise ValueError("could not clean up")

    run = await engine.start(waiting())
    await run.cancel()
    with pytest.raises(ValueError, match="could not clean up"):
        await run.result(60)
    assert await run.status() is RunStatus.FAILED


async def test_an_async_task_under_way_is_cancelled(engine: Engine) -> None:
    seen: list[str] = []

    @task
    async def long() -> None:
        seen.append("began")
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    @workflow
    async def waiting() -> None:
        await long()

    run = await engine.start(waiting())
    await until(lambda: seen == ["began"])
    await run.cancel()
    await assert_cancelled(run)
    await until(lambda: seen == ["began", "cancelled"])


async def test_the_outcome_of_a_task_that_ignores_its_cancellation_is_dropped(
    engine: Engine,
) -> None:
    seen: list[str] = []

    @task
    async def stubborn() -> str:
        seen.append("began")
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            await asyncio.sleep(0.05)
        seen.append("returned all the same")
        return "too late"

    @workflow
    async def waiting() -> str:
        return await stubborn()

    run = await engine.start(waiting())
    await until(lambda: seen == ["began"])
    await run.cancel()
    await assert_cancelled(run)
    await until(lambda: len(seen) == 2)
    (outcome,) = await recorded(engine, run, e.InvokeCompleted)
    assert not outcome.ok


async def test_a_task_that_waits_for_a_retry_is_not_tried_again(engine: Engine) -> None:
    attempts: list[int] = []

    @task(retry=Retry(attempts=5, first=3600, jitter=0))
    async def failing() -> None:
        attempts.append(1)
        raise ValueError

    @workflow
    async def waiting() -> None:
        await failing()

    run = await engine.start(waiting())
    await until_recorded(engine, run, e.InvokeRetrying)
    await run.cancel()
    await assert_cancelled(run)
    assert attempts == [1]
    # The message that would begin the retry is gone.
    assert await store_of(engine).messages(run.run_id) == []


async def test_every_branch_cleans_up_before_the_body_does(engine: Engine) -> None:
    @workflow
    async def waiting() -> None:
        async def branch(name: str) -> None:
            try:
                await perdure.sleep(3600)
            finally:
                await note(name)

        try:
            await perdure.gather(branch("left"), branch("right"), perdure.sleep(3600))
        finally:
            await note("body")

    run = await engine.start(waiting())
    await run.cancel()
    await assert_cancelled(run)
    assert sorted(done[:2]) == ["left", "right"]
    assert done[2:] == ["body"]


async def test_a_second_cancellation_changes_nothing(engine: Engine) -> None:
    run = await engine.start(refunding())
    await run.cancel("first")
    await until_status(run, RunStatus.CANCELLING)
    await run.cancel("second")
    await run.signal(word, "go on")
    await assert_cancelled(run)
    assert done == ["refunded"]
    assert [each.reason for each in await recorded(engine, run, e.CancelRequested)] == ["first"]


async def test_a_branch_that_cleans_up_already_is_not_disturbed_by_a_cancellation(
    engine: Engine,
) -> None:
    @workflow
    async def racing() -> None:
        async def losing() -> None:
            try:
                await perdure.sleep(3600)
            finally:
                await word.receive()
                await note("loser")

        try:
            await perdure.first(losing(), note("winner"))
        finally:
            await note("body")

    run = await engine.start(racing())
    await until_recorded(engine, run, e.InvokeCompleted)
    await run.cancel()
    await until_recorded(engine, run, e.CancelRequested)
    await run.signal(word, "go on")
    await assert_cancelled(run)
    assert done == ["winner", "loser", "body"]


async def test_the_branches_of_a_clean_up_are_not_disturbed_by_a_cancellation(
    engine: Engine,
) -> None:
    @workflow
    async def racing() -> None:
        async def undo(what: str) -> None:
            await word.receive()
            await note(what)

        async def losing() -> None:
            try:
                await perdure.sleep(3600)
            finally:
                await perdure.gather(undo("one"), undo("two"))

        await perdure.first(losing(), note("winner"))

    run = await engine.start(racing())
    await until_recorded(engine, run, e.InvokeCompleted)
    await run.cancel()
    await until_recorded(engine, run, e.CancelRequested)
    await run.signal(word, "go on")
    await run.signal(word, "go on")
    await assert_cancelled(run)
    assert sorted(done[1:]) == ["one", "two"]


async def test_a_run_that_waits_for_a_signal_can_be_cancelled(engine: Engine) -> None:
    @workflow
    async def asking() -> str:
        return await word.receive(timeout=3600)

    run = await engine.start(asking())
    await run.cancel()
    await assert_cancelled(run)
    assert await store_of(engine).messages(run.run_id) == []


async def test_a_cancelled_run_leaves_no_step_open(engine: Engine) -> None:
    @workflow
    async def busy() -> None:
        members = perdure.join_set()
        members.submit(perdure.sleep(3600))
        await perdure.start(sleeping())
        await perdure.gather(perdure.sleep(3600), word.receive(), sleeping())

    run = await engine.start(busy())
    await run.cancel()
    await assert_cancelled(run)
    assert isinstance((await journal(engine, run))[-1], e.ExecutionCancelled)


async def test_a_run_that_is_over_cant_be_cancelled(engine: Engine) -> None:
    @workflow
    async def short() -> str:
        return "done"

    run = await engine.start(short())
    await run.result(60)
    with pytest.raises(RunClosed):
        await run.cancel()
    assert await run.result(60) == "done"


async def test_a_run_of_another_engine_can_be_cancelled(shared_url: str) -> None:
    async with opened(shared_url) as owner, opened(shared_url) as other:
        run = await owner.start(sleeping())
        await other.handle(run.run_id).cancel()
        await assert_cancelled(run)


async def test_a_task_that_waits_for_a_slot_is_never_begun(engine_url: str) -> None:
    @task
    async def holding() -> None:
        await word_of_release.wait()

    word_of_release = asyncio.Event()

    @workflow
    async def first_one() -> None:
        await holding()

    @workflow
    async def second_one() -> None:
        await note("second")

    async with opened(engine_url, perdure.Settings(concurrency=1)) as engine:
        holder = await engine.start(first_one())
        run = await engine.start(second_one())
        await run.cancel()
        await assert_cancelled(run)
        word_of_release.set()
        await holder.result(60)
    assert done == []
