"""The life of an engine: starting runs, stopping, and resuming runs in the next engine."""

import asyncio
import gc
import weakref
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest

import perdure
from perdure import (
    Engine,
    Handle,
    KeyReused,
    Retry,
    RunStatus,
    Settings,
    Signal,
    StepInDoubt,
    UnknownRun,
    task,
    workflow,
)
from perdure.core.errors import EngineClosed, NotEncodable
from perdure.core.ids import new_run_id
from perdure.core.journal import events as e
from perdure.core.ledger import step_account
from perdure.engine.runs.warm import WarmRun
from perdure.testing.probe import Probe
from tests.client.engines import (
    ALWAYS_REPLAY,
    AT_ONCE,
    journal,
    killed,
    opened,
    recorded,
    until,
    until_recorded,
    until_status,
)

word = Signal("word", str)


@task(name="life.add")
async def add(number: int) -> int:
    return number + 1


@workflow(name="life.chain")
async def chain(start: int) -> int:
    return await add(await add(await add(start)))


@workflow(name="life.listening")
async def listening() -> str:
    return await word.receive()


# Starting


async def test_starting_with_a_key_again_gives_the_same_run(engine: Engine) -> None:
    first = await engine.start(chain(1), key="order-1")
    second = await engine.start(chain(1), key="order-1")
    assert first.run_id == second.run_id
    assert await second.result(60) == 4
    third = await engine.start(chain(1), key="order-1")
    assert third.run_id == first.run_id


async def test_a_key_is_taken_once_however_many_start_at_once(engine: Engine) -> None:
    begun: list[int] = []

    @task
    async def count() -> int:
        begun.append(1)
        return len(begun)

    @workflow
    async def counting() -> int:
        return await count()

    runs = await asyncio.gather(*(engine.start(counting(), key="one") for _ in range(10)))
    assert len({run.run_id for run in runs}) == 1
    assert {await run.result(60) for run in runs} == {1}
    assert begun == [1]


async def test_a_key_with_other_arguments_is_refused(engine: Engine) -> None:
    run = await engine.start(chain(1), key="order-1")
    with pytest.raises(KeyReused) as refused:
        await engine.start(chain(2), key="order-1")
    assert refused.value.run_id == run.run_id
    assert await run.result(60) == 4


async def test_a_key_belongs_to_its_scope(engine: Engine) -> None:
    mine = await engine.start(chain(1), key="order-1", scope="me")
    yours = await engine.start(chain(5), key="order-1", scope="you")
    assert (await mine.result(60), await yours.result(60)) == (4, 8)


async def test_many_runs_start_at_once(engine: Engine) -> None:
    keys = [f"key {number % 40}" for number in range(50)]
    runs = await engine.start_many((chain(number % 40) for number in range(50)), keys=keys)
    assert [await run.result(60) for run in runs] == [number % 40 + 3 for number in range(50)]
    assert len({run.run_id for run in runs}) == 40


async def test_if_one_of_many_calls_cant_be_started_none_is(engine: Engine) -> None:
    with pytest.raises(NotEncodable):
        await engine.start_many([chain(1), chain(object()), chain(2)])  # type: ignore[arg-type]
    assert (await engine.audit()).runs == 0


async def test_of_many_runs_those_are_started_whose_keys_are_free(engine: Engine) -> None:
    await engine.start(chain(1), key="taken")
    with pytest.raises(KeyReused, match="'taken'"):
        await engine.start_many([chain(5), chain(6), chain(7)], keys=["a", "taken", "b"])
    runs = await engine.start_many([chain(5), chain(7)], keys=["a", "b"])
    assert [await run.result(60) for run in runs] == [8, 10]
    assert (await engine.audit()).runs == 3


async def test_cancelled_start_many_leaves_no_unretrieved_exception(engine: Engine) -> None:
    """The begun run continues; the error of the taken key is dropped."""
    await engine.start(chain(1), key="taken")
    starting = asyncio.ensure_future(engine.start_many([chain(5), chain(6)], keys=["a", "taken"]))
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert await (await engine.start(chain(5), key="a")).result(60) == 8


async def test_handle_by_id_works_in_another_engine(shared_url: str) -> None:
    async with opened(shared_url) as owner, opened(shared_url) as other:
        run = await owner.start(chain(1))
        assert await other.handle(run.run_id).result(60) == 4


async def test_a_run_that_does_not_exist_is_unknown(engine: Engine) -> None:
    stranger = engine.handle(new_run_id(1, bytes(10)))
    for ask in (stranger.result, stranger.status, stranger.cancel, stranger.published):
        with pytest.raises(UnknownRun):
            await ask()


async def test_a_result_that_is_not_there_in_time_can_be_asked_for_again(engine: Engine) -> None:
    run = await engine.start(listening())
    with pytest.raises(TimeoutError, match="it continues"):
        await run.result(0.02)
    await run.signal(word, "now")
    assert await run.result(60) == "now"


async def test_an_engine_that_is_closed_refuses(engine_url: str) -> None:
    async with opened(engine_url) as engine:
        pass
    with pytest.raises(EngineClosed):
        await engine.start(chain(1))


# Watching


async def test_events_are_yielded_as_they_happen_and_end_with_the_run(engine: Engine) -> None:
    run = await engine.start(listening())
    seen: list[str] = []

    async def follow() -> None:
        async for entry in run.events():
            seen.append(type(entry.event).__name__)  # noqa: PERF401 - it is watched as it grows

    following = asyncio.create_task(follow())
    await until(lambda: seen[-1:] == ["ExecutionAwaiting"])
    await run.signal(word, "go")
    await asyncio.wait_for(following, 60)
    assert seen == [
        "ExecutionStarted",
        "ExecutionAwaiting",
        "SignalDelivered",
        "SignalReceived",
        "ExecutionResumed",
        "ExecutionCompleted",
    ]


async def test_events_may_be_read_from_any_number_on(engine: Engine) -> None:
    run = await engine.start(chain(1))
    await run.result(60)
    everything = [entry async for entry in run.events()]
    assert [entry.seq for entry in everything] == list(range(len(everything)))
    assert [entry.seq async for entry in run.events(3)] == list(range(3, len(everything)))


async def test_another_engine_follows_a_run_to_its_end(shared_url: str) -> None:
    async with opened(shared_url) as owner, opened(shared_url) as other:
        run = await owner.start(listening())
        await run.signal(word, "go")
        last = [entry async for entry in other.handle(run.run_id).events()][-1]
        assert isinstance(last.event, e.ExecutionCompleted)


async def test_status_follows_the_life_of_a_run(engine: Engine) -> None:
    @workflow
    async def failing() -> None:
        raise ValueError

    run = await engine.start(listening())
    assert await run.status() is RunStatus.BLOCKED
    await run.signal(word, "go")
    await run.result(60)
    assert await run.status() is RunStatus.COMPLETED
    failed = await engine.start(failing())
    assert await failed.status() is RunStatus.FAILED


# Stopping


async def test_stop_lets_a_task_end_and_the_next_engine_resumes_the_run(shared_url: str) -> None:
    begun: list[int] = []

    @task
    async def slow(number: int) -> int:
        begun.append(number)
        await asyncio.sleep(0.3)
        return number + 1

    @workflow
    async def chaining() -> int:
        return await slow(await slow(1))

    async with opened(shared_url) as engine:
        run = await engine.start(chaining())
        await until(lambda: begun == [1])
    assert begun == [1]
    async with opened(shared_url) as engine:
        again = engine.handle(run.run_id)
        assert await again.result(60) == 3
        assert begun == [1, 2]
        assert await recorded(engine, again, e.Posted) == []


async def test_a_task_that_outlasts_the_grace_is_in_doubt_and_begun_again(
    shared_url: str,
) -> None:
    attempts: list[int] = []

    @task
    async def first_hangs() -> str:
        attempts.append(perdure.info().attempt)
        if len(attempts) == 1:
            await asyncio.sleep(3600)
        return perdure.key()

    @workflow
    async def waiting() -> str:
        return await first_hangs()

    async with opened(shared_url, AT_ONCE) as engine:
        run = await engine.start(waiting())
        await until(lambda: attempts == [1])
    async with opened(shared_url) as engine:
        again = engine.handle(run.run_id)
        await again.result(60)
        assert attempts == [1, 2]
        (posted,) = await recorded(engine, again, e.Posted)
        assert posted.label == "stopped: retry"
        started = await recorded(engine, again, e.InvokeStarted)
        assert [each.attempt for each in started] == [1, 2]


async def test_a_task_that_was_in_doubt_too_often_fails(shared_url: str) -> None:
    attempts: list[int] = []

    @task
    async def hanging() -> None:
        attempts.append(perdure.info().attempt)
        await asyncio.sleep(3600)

    @workflow
    async def waiting() -> str:
        try:
            await hanging()
        except StepInDoubt as doubt:
            return doubt.code
        return ""

    run_id = ""
    for attempt in range(1, 5):
        async with killed(shared_url) as engine:
            if not run_id:
                run_id = (await engine.start(waiting())).run_id
            await until(lambda attempt=attempt: len(attempts) == attempt)  # type: ignore[misc]
    async with opened(shared_url) as engine:
        assert await engine.handle(run_id).result(60) == "step-in-doubt"
    assert attempts == [1, 2, 3, 4]


async def test_a_step_in_doubt_that_found_no_slot_is_not_doubted_twice(shared_url: str) -> None:
    release = asyncio.Event()

    @task
    async def hanging() -> str:
        await release.wait()
        return "done"

    @workflow
    async def waiting() -> tuple[str, str]:
        return await perdure.gather(hanging(), hanging())

    one_slot = Settings(concurrency=1)
    async with killed(shared_url) as engine:
        run = await engine.start(waiting())
        await until_recorded(engine, run, e.InvokeStarted, 2)
    for begun in (3, 4):
        async with killed(shared_url, one_slot) as engine:
            await until_recorded(engine, run, e.InvokeStarted, begun)
    release.set()
    async with opened(shared_url) as engine:
        found: Handle[tuple[str, str]] = engine.handle(run.run_id)
        assert await found.result(60) == ("done", "done")
        doubts = Counter(
            posting.account
            for posted in await recorded(engine, found, e.Posted)
            for posting in posted.postings
        )
        starts = Counter(
            step_account(started.promise_id)
            for started in await recorded(engine, found, e.InvokeStarted)
        )
    assert {account: count - 1 for account, count in starts.items()} == doubts


async def test_a_doubt_does_not_use_up_a_retry(shared_url: str) -> None:
    attempts: list[int] = []

    @task(retry=Retry(attempts=2, first=0))
    async def unlucky() -> None:
        attempts.append(perdure.info().attempt)
        if len(attempts) == 1:
            await asyncio.sleep(3600)
        raise ValueError

    @workflow
    async def waiting() -> None:
        await unlucky()

    async with opened(shared_url, AT_ONCE) as engine:
        run = await engine.start(waiting())
        await until(lambda: attempts == [1])
    async with opened(shared_url) as engine:
        with pytest.raises(ValueError):
            await engine.handle(run.run_id).result(60)
    assert attempts == [1, 2, 3]


async def test_a_crash_is_noticed_by_the_next_engine_of_the_machine(shared_url: str) -> None:
    crashed = Engine(shared_url)
    await crashed.open()
    run = await crashed.start(listening())
    await Probe(crashed).abort()
    async with opened(shared_url) as engine:
        again = engine.handle(run.run_id)
        await again.signal(word, "still here")
        assert await again.result(60) == "still here"


async def test_open_engine_takes_over_runs_of_a_stopped_engine(
    shared_url: str,
) -> None:
    async with opened(shared_url) as staying:
        async with opened(shared_url) as leaving:
            run = await leaving.start(listening())
        again = staying.handle(run.run_id)
        await again.signal(word, "taken over")
        assert await again.result(60) == "taken over"


async def test_the_outcome_of_a_task_that_ends_during_the_stop_is_kept(shared_url: str) -> None:
    begun: list[int] = []

    @task
    async def quick(number: int) -> int:
        begun.append(number)
        await asyncio.sleep(0.03)
        return number

    @workflow
    async def wide() -> int:
        return sum(await perdure.gather(*(quick(number) for number in range(50))))

    async with opened(shared_url) as engine:
        run = await engine.start(wide())
        await until(lambda: len(begun) == 50)
    async with opened(shared_url) as engine:
        assert await engine.handle(run.run_id).result(60) == sum(range(50))
    assert sorted(begun) == list(range(50))


async def test_a_stop_leaves_no_step_in_doubt_that_could_have_ended(shared_url: str) -> None:
    @workflow
    async def napping(number: int) -> int:
        await perdure.sleep(0.02 + number / 1000)
        await add(number)
        await perdure.sleep(0.01)
        return await add(number)

    async with opened(shared_url) as engine:
        runs = await engine.start_many(napping(number) for number in range(100))
        await asyncio.sleep(0.05)
    async with opened(shared_url) as engine:
        for run in runs:
            await engine.handle(run.run_id).result(60)
        doubts = [await recorded(engine, run, e.Posted) for run in runs]
    assert [doubt for doubt in doubts if doubt] == []


async def test_a_task_that_refuses_to_end_does_not_keep_its_engine_open(
    engine_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, release = asyncio.Event(), asyncio.Event()
    monkeypatch.setattr("perdure.host.runs.dispatcher.LONGEST_CLEAN_UP_S", 0.05)

    @task
    async def stubborn() -> None:
        begun.set()
        while not release.is_set():
            with suppress(asyncio.CancelledError):
                await release.wait()

    @workflow
    async def waiting() -> None:
        await stubborn()

    async with asyncio.timeout(60):
        async with opened(engine_url, AT_ONCE) as engine:
            await engine.start(waiting())
            await begun.wait()
    release.set()


# Little room


@pytest.mark.parametrize("is_async", [True, False])
async def test_one_slot_serves_many_steps(engine_url: str, is_async: bool) -> None:
    @task
    async def waiting(number: int) -> int:
        await asyncio.sleep(0)
        return number

    @task
    def blocking(number: int) -> int:
        return number

    chosen: Any = waiting if is_async else blocking

    @workflow
    async def many() -> int:
        return sum(await perdure.gather(*(chosen(number) for number in range(30))))

    async with opened(engine_url, Settings(concurrency=1, threads=1)) as engine:
        runs = await engine.start_many(many() for _ in range(3))
        assert [await run.result(60) for run in runs] == [sum(range(30))] * 3


async def test_a_thread_that_is_busy_keeps_no_async_step_waiting(engine_url: str) -> None:
    release = asyncio.Event()
    loop = asyncio.get_running_loop()

    @task
    def blocking() -> None:
        asyncio.run_coroutine_threadsafe(release.wait(), loop).result(60)

    @task
    async def quick() -> None:
        await asyncio.sleep(0)

    @workflow
    async def mixing() -> str:
        async def sync_side() -> None:
            await perdure.gather(blocking(), blocking(), blocking())

        async def async_side() -> None:
            await perdure.gather(quick(), quick(), quick(), quick())
            await let_go()

        await perdure.gather(sync_side(), async_side())
        return "no deadlock"

    @task
    async def let_go() -> None:
        release.set()

    async with opened(engine_url, Settings(concurrency=2, threads=1)) as engine:
        assert await (await engine.start(mixing())).result(60) == "no deadlock"


@pytest.mark.parametrize("count", [500, pytest.param(2000, marks=pytest.mark.deep)])
async def test_many_runs_complete_with_room_for_fifty(engine_url: str, count: int) -> None:
    async with opened(engine_url, Settings(warm_runs=50)) as engine:
        runs = await engine.start_many(chain(number) for number in range(count))
        results = [await run.result(60) for run in runs]
    assert results == [number + 3 for number in range(count)]


async def test_a_run_that_waits_needs_no_memory(engine_url: str) -> None:
    coroutines: list[weakref.ref[Any]] = []

    @workflow
    async def waiting() -> str:
        async def branch() -> str:
            return await word.receive()

        inner = branch()
        coroutines.append(weakref.ref(inner))
        (said,) = await perdure.gather(inner)
        return said

    async with opened(engine_url, ALWAYS_REPLAY) as engine:
        run = await engine.start(waiting())
        await until_status(run, RunStatus.BLOCKED)
        gc.collect()
        assert [found for found in gc.get_objects() if type(found) is WarmRun] == []
        assert [found() for found in coroutines if found() is not None] == []
        await run.signal(word, "awake")
        assert await run.result(60) == "awake"


async def test_runs_that_are_over_stay_nowhere_in_memory(engine_url: str) -> None:
    async with opened(engine_url) as engine:
        runs = await engine.start_many(chain(number) for number in range(20))
        for run in runs:
            await run.result(60)
        gc.collect()
        assert [found for found in gc.get_objects() if type(found) is WarmRun] == []


async def test_a_workflow_of_many_steps_is_replayed_at_every_one(engine_url: str) -> None:
    @workflow
    async def counting() -> int:
        number = 0
        for _ in range(30):
            number = await add(number)
        return number

    async with opened(engine_url, ALWAYS_REPLAY) as engine:
        assert await (await engine.start(counting())).result(60) == 30


async def test_no_message_is_left_of_runs_that_are_over(engine: Engine) -> None:
    @task(retry=Retry(attempts=2, first=0.01))
    async def flaky() -> None:
        if perdure.info().attempt == 1:
            raise ValueError

    @workflow
    async def everything() -> None:
        await flaky()
        await perdure.sleep(0.01)
        await perdure.first(chain(1), perdure.sleep(60))
        await word.receive(timeout=60)

    run: Handle[None] = await engine.start(everything())
    await run.signal(word, "go")
    await run.result(60)
    async for books in Probe(engine).store.books():
        assert await Probe(engine).store.messages(books.run_id) == []
    assert isinstance((await journal(engine, run))[-1], e.ExecutionCompleted)
