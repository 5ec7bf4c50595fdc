"""Tasks: their arguments, their results, and where they run."""

import asyncio
import threading
from typing import Any

import pytest

import perdure
from perdure import Engine, Settings, TaskFailed, task, workflow
from perdure.core.errors import NotEncodable
from perdure.core.journal import events as e
from tests.client.engines import opened, recorded


class Declined(Exception):
    """Importable, with plain arguments: the journal can rebuild it."""

    def __init__(self, code: int, shop: str) -> None:
        super().__init__(code, shop)
        self.code = code


@task(name="tasks.declining")
async def declining() -> None:
    raise Declined(402, "corner")


async def test_an_async_task_returns_its_result(engine: Engine) -> None:
    @task
    async def double(number: int) -> int:
        await asyncio.sleep(0)
        return number * 2

    @workflow
    async def doubling(number: int) -> int:
        return await double(number)

    assert await (await engine.start(doubling(21))).result(60) == 42


async def test_a_sync_task_runs_in_a_thread_of_its_own(engine: Engine) -> None:
    @task
    def thread_name() -> str:
        return threading.current_thread().name

    @workflow
    async def naming() -> str:
        return await thread_name()

    name = await (await engine.start(naming())).result(60)
    assert name != threading.current_thread().name


async def test_no_more_sync_tasks_run_at_once_than_there_are_threads(engine_url: str) -> None:
    lock = threading.Lock()
    running, most = 0, 0

    @task
    def busy() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        threading.Event().wait(0.02)
        with lock:
            running -= 1

    @workflow
    async def crowd() -> None:
        await perdure.gather(*(busy() for _ in range(8)))

    async with opened(engine_url, Settings(threads=2)) as engine:
        await (await engine.start(crowd())).result(60)
    assert most == 2


async def test_no_more_async_tasks_run_at_once_than_concurrency_says(engine_url: str) -> None:
    running, most = 0, 0

    @task
    async def busy() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1

    @workflow
    async def crowd() -> None:
        await perdure.gather(*(busy() for _ in range(9)))

    async with opened(engine_url, Settings(concurrency=3)) as engine:
        await (await engine.start(crowd())).result(60)
    assert most == 3


async def test_a_thread_keeps_its_slot_until_it_returns_though_its_task_timed_out(
    engine_url: str,
) -> None:
    release = threading.Event()

    @task(timeout=0.05)
    def stuck() -> None:
        release.wait(10)

    @task(timeout=0.1)
    def after() -> str:
        return "began when there was a thread"

    @workflow
    async def two() -> str:
        try:
            await stuck()
        except TimeoutError:
            return await after()
        return ""

    async with opened(engine_url, Settings(threads=1)) as engine:
        run = await engine.start(two())
        with pytest.raises(TimeoutError):
            await run.result(0.4)
        release.set()
        assert await run.result(60) == "began when there was a thread"


async def test_an_exception_reaches_the_workflow_as_its_own_type_with_a_note(
    engine: Engine,
) -> None:
    @workflow
    async def catching() -> list[Any]:
        try:
            await declining()
        except Declined as error:
            return [error.code, *error.__notes__]
        return []

    code, note = await (await engine.start(catching())).result(60)
    assert code == 402
    assert "task 'tasks.declining' (step root.0) failed with:" in note
    assert "in declining" in note


async def test_an_exception_reaches_the_client_as_its_own_type(engine: Engine) -> None:
    @workflow
    async def failing() -> None:
        await declining()

    run = await engine.start(failing())
    with pytest.raises(Declined) as caught:
        await run.result(60)
    assert caught.value.code == 402


async def test_an_exception_that_cant_be_rebuilt_arrives_as_task_failed(engine: Engine) -> None:
    class Hidden(Exception):
        pass

    @task
    async def failing() -> None:
        raise Hidden("behind a function")

    @workflow
    async def catching() -> list[str]:
        try:
            await failing()
        except TaskFailed as error:
            return [error.type_name.rpartition(".")[2], error.message]
        return []

    run = await engine.start(catching())
    assert await run.result(60) == ["Hidden", "behind a function"]


async def test_a_sync_task_that_raises_stop_iteration_fails_like_any_other(
    engine_url: str,
) -> None:
    @task
    def stopping() -> None:
        next(iter(()))

    @workflow
    async def catching() -> str:
        try:
            await stopping()
        except RuntimeError as error:
            return str(error)
        return ""

    async with opened(engine_url) as engine:
        assert await (await engine.start(catching())).result(60) == "coroutine raised StopIteration"


async def test_a_task_may_run_while_an_exception_is_handled(engine: Engine) -> None:
    @task
    async def undo(what: str) -> str:
        return f"undone {what}"

    @workflow
    async def undoing() -> list[str]:
        done = []
        try:
            await declining()
        except Declined:
            done.append(await undo("first"))
        finally:
            done.append(await undo("second"))
        return done

    run = await engine.start(undoing())
    assert await run.result(60) == ["undone first", "undone second"]


async def test_a_task_in_finally_runs_once_before_the_run_fails(engine: Engine) -> None:
    cleaned = []

    @task
    async def clean() -> None:
        cleaned.append(True)

    @workflow
    async def failing() -> None:
        try:
            await declining()
        finally:
            await clean()

    run = await engine.start(failing())
    with pytest.raises(Declined):
        await run.result(60)
    assert cleaned == [True]


async def test_what_a_task_does_to_its_arguments_is_not_seen_by_the_workflow(
    engine: Engine,
) -> None:
    @task
    async def spoil(numbers: list[int]) -> None:
        numbers.append(99)

    @workflow
    async def keeping() -> list[int]:
        numbers = [1, 2]
        await spoil(numbers)
        return numbers

    assert await (await engine.start(keeping())).result(60) == [1, 2]


async def test_a_task_sees_its_arguments_as_they_were_when_it_was_scheduled(
    engine_url: str,
) -> None:
    @task
    async def total(numbers: list[int]) -> int:
        return sum(numbers)

    @workflow
    async def changing() -> tuple[int, int]:
        numbers = [1]

        async def grow() -> int:
            numbers.append(10)
            return await total(numbers)

        return await perdure.gather(total(numbers), grow())

    async with opened(engine_url) as engine:
        assert await (await engine.start(changing())).result(60) == (1, 11)


async def test_a_result_that_cant_be_stored_is_the_tasks_failure(engine: Engine) -> None:
    @task
    async def odd() -> Any:
        return object()

    @workflow
    async def asking() -> None:
        await odd()

    run = await engine.start(asking())
    with pytest.raises(NotEncodable):
        await run.result(60)


async def test_each_task_is_scheduled_started_and_completed_in_the_journal(
    engine: Engine,
) -> None:
    @task
    async def one(number: int) -> int:
        return number

    @workflow
    async def pair() -> None:
        await one(1)
        await one(2)

    run = await engine.start(pair())
    await run.result(60)
    scheduled = await recorded(engine, run, e.InvokeScheduled)
    assert [(each.promise_id, each.payload) for each in scheduled] == [
        ("root.0", b'{"number":1}'),
        ("root.1", b'{"number":2}'),
    ]
    started = await recorded(engine, run, e.InvokeStarted)
    assert [(each.promise_id, each.attempt) for each in started] == [("root.0", 1), ("root.1", 1)]
    completed = await recorded(engine, run, e.InvokeCompleted)
    assert [each.payload for each in completed] == [b"1", b"2"]


async def test_a_task_called_by_a_task_is_part_of_it(engine: Engine) -> None:
    @task
    async def inner() -> str:
        return perdure.key()

    @task
    async def outer() -> tuple[str, str]:
        return perdure.key(), await inner()

    @workflow
    async def nesting() -> tuple[str, str]:
        return await outer()

    run = await engine.start(nesting())
    mine, below = await run.result(60)
    assert mine != below
    assert len(await recorded(engine, run, e.InvokeScheduled)) == 1
