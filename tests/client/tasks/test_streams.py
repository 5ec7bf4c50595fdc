"""Streams: readers get each chunk live and once, and learn which chunks were abandoned."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any

import pytest

import perdure
from perdure import (
    Abandoned,
    Chunk,
    ChunkState,
    Engine,
    Handle,
    InputError,
    Retry,
    Settings,
    Signal,
    SyncEngine,
    task,
    workflow,
)
from perdure.core.errors import (
    BundleRefused,
    NotDecodable,
    NotEncodable,
    OutsideRun,
    PayloadTooLarge,
    RunEnded,
    StoreUnavailable,
)
from perdure.core.journal import events as e
from perdure.core.limits import MAX_PAYLOAD_BYTES
from perdure.host.tasks import streams as streaming
from perdure.store.commit.bundle import Bundle
from perdure.testing.probe import Probe
from tests.client.engines import (
    ALWAYS_REPLAY,
    assert_cancelled,
    opened,
    recorded,
    store_of,
    until,
    until_recorded,
)

PENDING, COMPLETED, ABANDONED = ChunkState
SHORT_LEASE = Settings(lease=0.2)

go_on = Signal("streams.go-on", int)

Items = list[Chunk[Any] | Abandoned]


async def everything(run: Handle[Any], name: str = "tokens", start: int = 0) -> Items:
    """Everything that a live reader yields, to the end of the run."""
    async with asyncio.timeout(60):
        return [item async for item in run.stream(name, start=start)]


async def counting(run: Handle[Any], name: str = "tokens", start: int = 0) -> list[Any]:
    """The completed values."""
    async with asyncio.timeout(60):
        found = run.stream(name, start=start, completed_only=True)
        chunks = [chunk async for chunk in found]
    assert all(chunk.state is COMPLETED for chunk in chunks)
    offsets = [chunk.offset for chunk in chunks]
    assert offsets == sorted(set(offsets))
    return [chunk.value for chunk in chunks]


def left(items: Items) -> list[Any]:
    """The values that a live reader has kept at the end."""
    shown: dict[int, Any] = {}
    for item in items:
        if isinstance(item, Chunk):
            assert item.offset not in shown
            if item.state is not ABANDONED:
                shown[item.offset] = item.value
        else:
            for offset in item.offsets:
                shown.pop(offset, None)
    return list(shown.values())


def shown(items: Items) -> list[Any]:
    """Values with their states, and the abandoned offsets."""
    return [
        (item.value, item.state) if isinstance(item, Chunk) else list(item.offsets)
        for item in items
    ]


@task(name="streams.say")
async def say(*words: str) -> None:
    for word in words:
        perdure.stream("tokens").append(word)
        await asyncio.sleep(0)


async def test_what_workflows_and_tasks_append_is_read_in_order(engine: Engine) -> None:
    @workflow
    async def talking() -> None:
        tokens = perdure.stream("tokens")
        tokens.append("begin")
        await say("a", "b")
        tokens.append("between")
        tokens.append("and")
        await say("c")
        tokens.append("end")

    run = await engine.start(talking())
    expected = ["begin", "a", "b", "between", "and", "c", "end"]
    items = await everything(run)
    assert left(items) == expected
    assert [item.offset for item in items if isinstance(item, Chunk)] == list(range(7))
    assert await counting(run) == expected
    steps = [(item.step, item.attempt) for item in items if isinstance(item, Chunk)]
    assert steps == [
        ("root", 1),
        ("root.0", 1),
        ("root.0", 1),
        ("root", 1),
        ("root", 1),
        ("root.1", 1),
        ("root", 1),
    ]


async def test_stream_values_are_read_as_the_requested_type(engine: Engine) -> None:
    @workflow
    async def appending() -> None:
        for value in (None, 1, [1.5], {"a": "b"}, "x"):
            perdure.stream("values").append(value)

    run = await engine.start(appending())
    assert await counting(run, "values") == [None, 1, [1.5], {"a": "b"}, "x"]
    found = run.stream("values", of=int, start=1)
    assert (await anext(found)) == Chunk(1, 1, *await details(engine, run, 1))
    with pytest.raises(NotDecodable, match="chunk 2 of stream 'values': payload is not a int"):
        await anext(found)


async def details(engine: Engine, run: Handle[Any], offset: int) -> tuple[Any, ...]:
    (chunk,) = await Probe(engine).store.chunks(run.run_id, "values", offset, 1)
    return chunk.origin.step, chunk.origin.attempt, COMPLETED, chunk.at_ms


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_reader_has_a_chunk_while_its_task_runs(engine_url: str, is_async: bool) -> None:
    released = threading.Event()

    @task
    async def waiting() -> None:
        perdure.stream("tokens").append("early")
        await until(released.is_set)
        perdure.stream("tokens").append("late")

    @task
    def blocking() -> None:
        perdure.stream("tokens").append("early")
        assert released.wait(10)
        perdure.stream("tokens").append("late")

    @workflow
    async def streaming_its_way() -> None:
        await (waiting() if is_async else blocking())

    async with opened(engine_url) as engine, asyncio.timeout(60):
        run = await engine.start(streaming_its_way())
        reader = run.stream("tokens", of=str)
        early = await anext(reader)
        assert isinstance(early, Chunk)
        assert (early.value, early.state) == ("early", PENDING)
        assert not await recorded(engine, run, e.InvokeCompleted)
        released.set()
        assert shown([item async for item in reader]) in (
            [("late", PENDING)],
            [("late", COMPLETED)],
        )
        assert await counting(run) == ["early", "late"]


async def test_a_reader_in_the_same_process_is_woken_by_an_append(
    engine_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.host.host.POLL_MS", 3_600_000)
    rare = Settings(heartbeat=3600, stale_after=36_000)
    read: asyncio.Queue[int] = asyncio.Queue()

    @task
    async def ticking() -> None:
        for number in range(5):
            perdure.stream("tokens").append(number)
            assert await read.get() == number

    @workflow
    async def clock() -> None:
        await ticking()

    async with opened(engine_url, rare) as engine, asyncio.timeout(60):
        run = await engine.start(clock())
        async for item in run.stream("tokens", of=int):
            assert isinstance(item, Chunk)
            read.put_nowait(item.value)
        await run.result()


async def test_completed_only_yields_chunks_after_their_step_completed(
    engine_url: str,
) -> None:
    released = asyncio.Event()

    @task
    async def waiting() -> None:
        perdure.stream("tokens").append("pending")
        await released.wait()

    @workflow
    async def streaming_its_way() -> None:
        perdure.stream("tokens").append("at once")
        await waiting()

    async with opened(engine_url) as engine, asyncio.timeout(60):
        run = await engine.start(streaming_its_way())
        reader = run.stream("tokens", of=str, completed_only=True)
        assert (await anext(reader)).value == "at once"
        following = asyncio.ensure_future(anext(reader))
        async for item in run.stream("tokens", of=str, start=1):
            assert isinstance(item, Chunk)
            break
        await asyncio.sleep(0.1)
        assert not following.done()
        released.set()
        assert (await following).value == "pending"


async def test_a_failed_attempt_is_taken_back_before_the_next_one_is_delivered(
    engine: Engine,
) -> None:
    @task(retry=Retry(attempts=3, first=0.02))
    async def flaky() -> None:
        attempt = perdure.info().attempt
        for number in range(attempt):
            perdure.stream("tokens").append(f"{attempt}.{number}")
        if attempt < 3:
            await until_read(attempt)
            raise ConnectionError

    read: set[int] = set()

    async def until_read(attempt: int) -> None:
        await until(lambda: attempt in read)

    @workflow
    async def trying() -> None:
        await flaky()

    run = await engine.start(trying())
    items: Items = []
    async with asyncio.timeout(60):
        async for item in run.stream("tokens", of=str):
            items.append(item)
            if isinstance(item, Chunk) and item.value in ("1.0", "2.1"):
                read.add(item.attempt)
    assert shown(items)[:5] == [
        ("1.0", PENDING),
        [0],
        ("2.0", PENDING),
        ("2.1", PENDING),
        [1, 2],
    ]
    assert [item.attempt for item in items if isinstance(item, Abandoned)] == [1, 2]
    assert left(items) == await counting(run) == ["3.0", "3.1", "3.2"]
    again = await everything(run)
    assert shown(again) == [
        *((value, ABANDONED) for value in ("1.0", "2.0", "2.1")),
        *((value, COMPLETED) for value in ("3.0", "3.1", "3.2")),
    ]


async def test_an_attempt_that_failed_for_good_is_abandoned(engine: Engine) -> None:
    @task
    async def failing() -> None:
        perdure.stream("tokens").append("in vain")
        raise LookupError

    @workflow
    async def trying() -> None:
        perdure.stream("tokens").append("first")
        await failing()

    run = await engine.start(trying())
    with pytest.raises(LookupError):
        await run.result(60)
    assert shown(await everything(run)) == [("first", COMPLETED), ("in vain", ABANDONED)]
    assert await counting(run) == ["first"]


async def test_the_loser_of_a_race_is_abandoned(engine: Engine) -> None:
    appended = asyncio.Event()

    @task
    async def slow() -> None:
        perdure.stream("tokens").append("slow")
        await perdure.stream("tokens").flush()
        appended.set()
        await asyncio.sleep(3600)

    @task
    async def quick() -> None:
        await appended.wait()
        perdure.stream("tokens").append("quick")

    @workflow
    async def racing() -> None:
        await perdure.first(slow(), quick())

    run = await engine.start(racing())
    items = await everything(run)
    assert left(items) == await counting(run) == ["quick"]


async def test_cancelled_run_abandons_its_running_attempts(engine: Engine) -> None:
    @task
    async def endless() -> None:
        perdure.stream("tokens").append("pending")
        await asyncio.sleep(3600)

    @workflow
    async def tidying() -> None:
        try:
            await endless()
        finally:
            perdure.stream("tokens").append("cleaned up")

    run = await engine.start(tidying())
    reader = run.stream("tokens", of=str)
    assert isinstance(await anext(reader), Chunk)
    await run.cancel()
    await assert_cancelled(run)
    assert shown([item async for item in reader]) == [[0], ("cleaned up", COMPLETED)]


async def test_a_replay_appends_nothing_again(engine_url: str) -> None:
    replays: list[int] = []

    @workflow
    async def talking() -> None:
        replays.append(1)
        for number in range(5):
            perdure.stream("tokens").append(number)
            await say(f"task {number}")

    async with opened(engine_url, ALWAYS_REPLAY) as engine:
        run = await engine.start(talking())
        expected = [each for number in range(5) for each in (number, f"task {number}")]
        assert await counting(run) == expected
    assert len(replays) > 5


async def test_chunks_of_threads_keep_their_order(engine_url: str) -> None:
    @task
    def many() -> None:
        for number in range(2000):
            perdure.stream("tokens").append(number)

    @workflow
    async def counting_up() -> None:
        await perdure.gather(many(), many(), many())

    async with opened(engine_url) as engine:
        run = await engine.start(counting_up())
        chunks = [chunk async for chunk in run.stream("tokens", of=int, completed_only=True)]
        for number in range(3):
            mine = [chunk.value for chunk in chunks if chunk.step == f"root.{number}"]
            assert mine == list(range(2000))
        assert [chunk.offset for chunk in chunks] == list(range(6000))


async def test_a_thread_with_a_loop_of_its_own_flushes(engine: Engine) -> None:
    durable: list[int] = []

    @task
    def looping() -> None:
        tokens, run_id = perdure.stream("tokens"), perdure.info().run_id

        async def talk() -> None:
            await tokens.flush()
            tokens.append("a")
            await tokens.flush()

        asyncio.run(talk())
        asked = asyncio.run_coroutine_threadsafe(store_of(engine).streams(run_id), loop)
        durable.append(asked.result(60)["tokens"])

    @workflow
    async def streaming_its_way() -> None:
        await looping()

    loop = asyncio.get_running_loop()
    run = await engine.start(streaming_its_way())
    assert await counting(run) == ["a"]
    assert durable == [1]


async def test_a_task_within_a_task_appends_as_part_of_the_outer_one(engine: Engine) -> None:
    @task
    def inner(word: str) -> None:
        perdure.stream("tokens").append(word)

    @task
    async def outer() -> None:
        perdure.stream("tokens").append("a")
        await inner("b")
        await inner("c")
        perdure.stream("tokens").append("d")

    @workflow
    async def nesting() -> None:
        await outer()

    run = await engine.start(nesting())
    assert await counting(run) == ["a", "b", "c", "d"]
    assert {item.step for item in await everything(run)} == {"root.0"}


async def test_a_reader_begins_anywhere_and_ends_with_the_run(engine: Engine) -> None:
    @workflow
    async def talking() -> None:
        await say("a", "b", "c", "d")

    run = await engine.start(talking())
    await run.result(60)
    for start in range(6):
        assert await counting(run, start=start) == ["a", "b", "c", "d"][start:]
        assert left(await everything(run, start=start)) == ["a", "b", "c", "d"][start:]
    assert await everything(run, "nothing of this name") == []


async def test_resumed_reader_learns_which_earlier_chunks_were_abandoned(engine: Engine) -> None:
    @task(retry=Retry(attempts=2, first=0.02))
    async def flaky() -> None:
        for _ in range(3):
            perdure.stream("tokens").append(perdure.info().attempt)
        if perdure.info().attempt == 1:
            raise ConnectionError

    @workflow
    async def trying() -> None:
        await flaky()

    run = await engine.start(trying())
    await run.result(60)
    assert shown(await everything(run, start=2)) == [
        [0, 1],
        (1, ABANDONED),
        *[(2, COMPLETED)] * 3,
    ]
    (void,) = [item for item in await everything(run, start=4) if isinstance(item, Abandoned)]
    assert (void.step, void.attempt, void.spans) == ("root.0", 1, (range(3),))
    assert [offset in void for offset in range(-1, 4)] == [False, True, True, True, False]


async def test_two_readers_get_the_same_chunks_and_one_may_stop(engine: Engine) -> None:
    @workflow
    async def talking() -> None:
        await say(*"abcdef")
        perdure.stream("tokens").append(await go_on.receive())

    run = await engine.start(talking())

    async def stop_early() -> list[Any]:
        async with aclosing(run.stream("tokens", of=str)) as reader:
            return [await anext(reader) for _ in range(3)]

    async def read_on() -> Items:
        return await everything(run)

    readers = asyncio.gather(stop_early(), read_on(), read_on())
    await run.signal(go_on, 7)
    few, one, two = await readers
    assert left(few) == ["a", "b", "c"]
    assert left(one) == left(two) == [*"abcdef", 7]
    assert Probe(engine).host.context.watchers.followed == set()


async def test_a_reader_in_another_engine_follows_by_polling(shared_url: str) -> None:
    released = asyncio.Event()

    @task
    async def waiting() -> None:
        perdure.stream("tokens").append("a")
        await released.wait()
        perdure.stream("tokens").append("b")

    @workflow
    async def streaming_its_way() -> None:
        await waiting()

    async with opened(shared_url) as owner, opened(shared_url) as other, asyncio.timeout(60):
        run = await owner.start(streaming_its_way())
        reader = other.handle(run.run_id).stream("tokens", of=str)
        assert isinstance(await anext(reader), Chunk)
        released.set()
        assert left([item async for item in reader]) == ["b"]


async def test_an_attempt_that_was_in_doubt_is_taken_back(shared_url: str) -> None:
    begun: list[int] = []
    never = asyncio.Event()

    @task
    async def first_hangs() -> None:
        begun.append(perdure.info().attempt)
        perdure.stream("tokens").append(f"attempt {len(begun)}")
        if len(begun) == 1:
            await never.wait()

    @workflow
    async def waiting() -> None:
        await first_hangs()

    dying = Engine(shared_url)
    await dying.open()
    run = await dying.start(waiting())
    await anext(run.stream("tokens"))
    async with opened(shared_url) as reading, asyncio.timeout(60):
        reader = reading.handle(run.run_id).stream("tokens", of=str)
        items: Items = [await anext(reader)]
        await Probe(dying).abort()
        items += [item async for item in reader]
        assert shown(items)[:2] == [("attempt 1", PENDING), [0]]
        assert left(items) == await counting(reading.handle(run.run_id)) == ["attempt 2"]


# Chains


@task(retry=Retry(attempts=2, first=0.01))
async def recites_of_chain(lap: int) -> None:
    tokens = perdure.stream("tokens")
    tokens.append(f"{lap} attempt {perdure.info().attempt}")
    await tokens.flush()
    if perdure.info().attempt == 1:
        raise ConnectionError("not yet")


@workflow
async def streaming_chain(lap: int) -> int:
    perdure.stream("tokens").append(f"lap {lap}")
    await recites_of_chain(lap)
    if lap == 3:
        return lap
    return await perdure.continue_as_new(streaming_chain(lap + 1))


async def test_the_streams_of_a_chain_read_as_one(engine: Engine) -> None:
    run = await engine.start(streaming_chain(1))
    items = await everything(run)
    assert await run.result(60) == 3
    chunks = [item for item in items if isinstance(item, Chunk)]
    assert [chunk.offset for chunk in chunks] == list(range(9))
    expected = [text for lap in (1, 2, 3) for text in (f"lap {lap}", f"{lap} attempt 2")]
    assert await counting(run) == expected
    assert left(await everything(run)) == left(items) == expected
    assert await counting(run, start=4) == expected[3:]
    again = await everything(run, start=4)
    assert [item.offset for item in again if isinstance(item, Chunk)] == list(range(4, 9))
    assert [list(item.offsets) for item in again if isinstance(item, Abandoned)] == [[1]]
    last = list(await run.runs())[-1]
    assert await counting(engine.handle(last)) == expected


# Queues


async def test_offsets_of_a_chain_stay_what_they_were(shared_url: str) -> None:
    """A task that lost its race still runs in another engine when its run is over: its appends are refused."""
    refused: list[BaseException] = []

    @task(queue="streams")
    async def talk_on() -> None:
        tokens = perdure.stream("tokens")
        try:
            while True:
                tokens.append("on and on")
                await asyncio.sleep(0.01)
        except RunEnded as error:
            refused.append(error)
            raise

    @workflow
    async def outlived(turn: int) -> None:
        if turn == 0:
            await perdure.first(talk_on(), go_on.receive())
            await perdure.continue_as_new(outlived(1))
        perdure.stream("tokens").append("the second run")
        await go_on.receive()

    async def place() -> int:
        async for item in run.stream("tokens"):
            if isinstance(item, Chunk) and item.value == "the second run":
                return item.offset
        pytest.fail("it is not there")

    async with opened(shared_url) as engine, opened(shared_url, queues=("streams",)):
        run = await engine.start(outlived(0))
        await anext(run.stream("tokens"))
        await run.signal(go_on, 1)
        async with asyncio.timeout(60):
            before = await place()
            await until(lambda: bool(refused))
            assert await place() == before
        await run.signal(go_on, 2)
        await run.result()
        assert await place() == before
        rest = await everything(run, start=before + 1)
        assert [item for item in rest if isinstance(item, Chunk)] == []


async def test_a_queued_task_streams_from_the_engine_that_executes_it(shared_url: str) -> None:
    @task(queue="streams")
    async def spelling() -> None:
        for word in "abc":
            perdure.stream("tokens").append(word)

    @workflow
    async def sending() -> None:
        await spelling()

    async with opened(shared_url) as owner, opened(shared_url, queues=("streams",)):
        run = await owner.start(sending())
        assert left(await everything(run)) == await counting(run) == ["a", "b", "c"]


@pytest.mark.parametrize("is_silent", [True, False])
async def test_chunks_of_the_host_that_holds_the_lease_are_valid(
    shared_url: str, is_silent: bool
) -> None:
    """The first host loses its lease, continues, and appends to the end; the second completes the step."""
    begun: list[asyncio.Event] = []

    @task(queue="streams")
    async def twice() -> None:
        number = len(begun)
        begun.append(asyncio.Event())
        tokens = perdure.stream("tokens")
        if number == 0 or not is_silent:
            tokens.append(f"{number} begins")
            await tokens.flush()
        await begun[number].wait()
        if number == 0 or not is_silent:
            tokens.append(f"{number} ends")

    @workflow
    async def sending() -> None:
        await twice()
        await go_on.receive()

    async with opened(shared_url) as owner, asyncio.timeout(60):
        sleepy = Engine(shared_url, queues=("streams",), settings=SHORT_LEASE)
        await sleepy.open()
        run = await owner.start(sending())
        reader = run.stream("tokens", of=str)
        items: Items = [await anext(reader)]
        Probe(sleepy).host.worker.close()
        Probe(sleepy).stop_renewing_leases()
        async with opened(shared_url, SHORT_LEASE, ("streams",)):
            await until(lambda: len(begun) == 2)
            begun[1].set()
            completed = await until_recorded(owner, run, e.InvokeCompleted)
            assert completed.claim == 2
            begun[0].set()
            await sleepy.close()
            await run.signal(go_on, 1)
            items += [item async for item in reader]
        expected = [] if is_silent else ["1 begins", "1 ends"]
        assert left(items) == await counting(run) == expected
        assert {item.attempt for item in items} == {1}
        states = {c.value: c.state for c in await everything(run) if isinstance(c, Chunk)}
        assert states["0 begins"] is states["0 ends"] is ABANDONED


# On its way to the store


class Till:
    """Intercepts the commits of an engine that contain chunks."""

    def __init__(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        store = store_of(engine)
        self._commit = store.commit
        self.refusals: list[Exception] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.chunks: list[int] = []
        monkeypatch.setattr(store, "commit", self._pass)

    def _pass(self, bundle: Bundle) -> Awaitable[None]:
        return self._stop(bundle) if bundle.chunks else self._commit(bundle)

    async def _stop(self, bundle: Bundle) -> None:
        self.chunks.append(len(bundle.chunks))
        await self.gate.wait()
        if self.refusals:
            raise self.refusals.pop(0)
        await self._commit(bundle)


async def test_the_outcome_waits_for_the_chunks(
    engine_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    @workflow
    async def talking() -> None:
        await say("a", "b", "c")

    async with opened(engine_url) as engine:
        till = Till(engine, monkeypatch)
        till.gate.clear()
        run = await engine.start(talking())
        await until(lambda: len(till.chunks) == 1)
        await asyncio.sleep(0.05)
        assert await recorded(engine, run, e.InvokeCompleted) == []
        till.gate.set()
        await run.result(60)
        assert await counting(run) == ["a", "b", "c"]
        assert till.chunks == [1, 2], "what is appended during a commit goes with the next"


async def test_a_store_that_can_not_be_written_is_tried_again(
    engine_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    @workflow
    async def talking() -> None:
        await say("a", "b")

    async with opened(engine_url) as engine:
        till = Till(engine, monkeypatch)
        till.refusals = [StoreUnavailable("full", "wait"), StoreUnavailable("full", "wait")]
        run = await engine.start(talking())
        await run.result(60)
        assert await counting(run) == ["a", "b"]


@pytest.mark.parametrize("is_async", [True, False])
async def test_an_attempt_whose_chunks_are_refused_has_failed(
    engine_url: str, monkeypatch: pytest.MonkeyPatch, is_async: bool
) -> None:
    retry = Retry(attempts=2, first=0)

    @task(retry=retry)
    async def waiting() -> None:
        perdure.stream("tokens").append(perdure.info().attempt)

    @task(retry=retry)
    def blocking() -> None:
        perdure.stream("tokens").append(perdure.info().attempt)

    @workflow
    async def streaming_its_way() -> None:
        await (waiting() if is_async else blocking())

    async with opened(engine_url) as engine:
        till = Till(engine, monkeypatch)
        till.refusals = [BundleRefused("a row", "none")]
        run = await engine.start(streaming_its_way())
        await run.result(60)
        assert await counting(run) == [2]
        till.refusals = [BundleRefused("a row", "none"), BundleRefused("a row", "none")]
        again = await engine.start(streaming_its_way())
        with pytest.raises(BundleRefused, match="a row"):
            await again.result(60)


async def test_task_gets_the_error_of_its_refused_chunks(
    engine_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[str] = []

    @task
    async def stubborn() -> None:
        tokens = perdure.stream("tokens")
        tokens.append(1)
        for attempt in (tokens.flush, lambda: asyncio.to_thread(tokens.append, 2)):
            try:
                await attempt()
            except BundleRefused as error:
                heard.append(error.what)

    @workflow
    async def streaming_its_way() -> None:
        await stubborn()

    async with opened(engine_url) as engine:
        Till(engine, monkeypatch).refusals = [BundleRefused("a row", "none")]
        with pytest.raises(BundleRefused):
            await (await engine.start(streaming_its_way())).result(60)
    assert heard == ["a row", "a row"]


async def test_a_thread_waits_while_the_store_can_not_keep_up(
    engine_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "MAX_WAITING_BYTES", 10 * (streaming.CHUNK_BYTES + 3))
    appended: list[int] = []

    @task
    def fast() -> None:
        for number in range(100):
            perdure.stream("tokens").append(number)
            appended.append(number)

    @workflow
    async def streaming_its_way() -> None:
        await fast()

    async with opened(engine_url) as engine:
        till = Till(engine, monkeypatch)
        till.gate.clear()
        run = await engine.start(streaming_its_way())
        await until(lambda: len(appended) > 9)
        await asyncio.sleep(0.05)
        assert len(appended) < 30, "those in the commit under way, and those that wait"
        till.gate.set()
        await run.result(60)
        assert await counting(run) == list(range(100))


async def test_coroutine_that_appends_faster_than_the_store_is_refused(
    engine_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "MAX_WAITING_BYTES", 10 * (streaming.CHUNK_BYTES + 3))

    remedies: list[str] = []

    @task
    async def careless() -> int:
        tokens = perdure.stream("tokens")
        for number in range(100):
            try:
                tokens.append(number)
            except PayloadTooLarge as error:
                remedies.append(error.remedy)
                return number
        return -1

    @task
    async def careful() -> None:
        tokens = perdure.stream("tokens")
        for number in range(100):
            tokens.append(number)
            if number % 5 == 0:
                await tokens.flush()

    @workflow
    async def streaming_its_way(is_careful: bool) -> int | None:
        return await (careful() if is_careful else careless())

    async with opened(engine_url) as engine:
        run = await engine.start(streaming_its_way(False))
        count = await run.result(60)
        assert count is not None
        assert 9 <= count < 20
        assert remedies == ["await flush() of stream 'tokens' now and then"]
        assert await counting(run) == list(range(count))
        run = await engine.start(streaming_its_way(True))
        await run.result(60)
        assert await counting(run) == list(range(100))


async def test_waiting_thread_is_released_when_its_attempt_is_abandoned(
    engine_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "MAX_WAITING_BYTES", 1)
    heard: list[str] = []

    @task(timeout=0.3)
    def stuck() -> None:
        try:
            for number in range(3):
                perdure.stream("tokens").append(number)
        except OutsideRun as error:
            heard.append(str(error))

    @workflow
    async def streaming_its_way() -> None:
        await stuck()

    async with opened(engine_url) as engine:
        till = Till(engine, monkeypatch)
        till.gate.clear()
        run = await engine.start(streaming_its_way())
        await until(lambda: bool(heard))
        till.gate.set()
        with pytest.raises(TimeoutError):
            await run.result(60)
    (said,) = heard
    assert "appended to when attempt 1 of task 'stuck' (root.0) is over" in said


async def test_append_after_the_end_of_the_task_is_refused(engine: Engine) -> None:
    kept: list[perdure.Stream] = []

    @task
    async def leaky(is_used: bool) -> None:
        kept.append(perdure.stream("tokens"))
        if is_used:
            kept[-1].append("in time")

    @workflow
    async def leaking() -> None:
        kept.append(perdure.stream("tokens"))
        await leaky(True)
        await leaky(False)

    run = await engine.start(leaking())
    await run.result(60)
    for late in kept:
        with pytest.raises(OutsideRun):
            late.append("too late")
    assert await counting(run) == ["in time"]


# Wrong use


async def refusal(engine: Engine, append: Callable[[], object], kind: type[Exception]) -> str:
    """The errors of a task and of a workflow that do this; the stream stays empty."""

    @task
    async def wrong() -> str:
        try:
            append()
        except kind as error:
            return str(error)
        return "nothing"

    @workflow(lint="off")
    async def wrong_twice() -> tuple[str, str]:
        try:
            append()
        except kind as error:
            return str(error), await wrong()
        return "nothing", "nothing"

    run = await engine.start(wrong_twice())
    in_workflow, in_task = await run.result(60)
    # A value that can't be encoded is named with the run, or with the task and its step.
    by_run, by_task = (
        f"by run {run.run_id!r}",
        f"by task 'wrong' (step root.0 of run {run.run_id!r})",
    )
    assert in_workflow == in_task.replace(by_task, by_run)
    assert await store_of(engine).streams(run.run_id) == {}
    return in_task


async def test_append_refuses_a_value_that_can_not_be_stored(engine: Engine) -> None:
    def append(value: object) -> Callable[[], object]:
        return lambda: perdure.stream("tokens").append(value)

    assert "over the limit" in await refusal(
        engine, append("x" * MAX_PAYLOAD_BYTES), PayloadTooLarge
    )
    assert "can't be stored" in await refusal(engine, append(object()), NotEncodable)
    assert "nan" in await refusal(engine, append(float("nan")), NotEncodable)
    said = await refusal(engine, lambda: perdure.stream("\u20ac" * 86).append(1), InputError)
    assert "of 258 bytes" in said
    assert "use at most 255" in said


async def test_the_largest_chunk_passes(engine: Engine) -> None:
    largest = "x" * (MAX_PAYLOAD_BYTES - len('""'))

    @task
    async def large() -> None:
        perdure.stream("tokens").append(largest)

    @workflow
    async def appending() -> None:
        await large()

    run = await engine.start(appending())
    assert await counting(run) == [largest]


async def test_a_workflow_does_not_flush(engine: Engine) -> None:
    @workflow
    async def flushing() -> None:
        await perdure.stream("tokens").flush()

    run = await engine.start(flushing())
    with pytest.raises(OutsideRun, match="leave it out"):
        await run.result(60)


@pytest.mark.parametrize("start", [-1, 1.5, "0", True, None, 1 << 63])
async def test_invalid_offset_is_refused_at_once(engine_url: str, start: Any) -> None:
    async with opened(engine_url) as engine:
        run = await engine.start(never_ending())
        with pytest.raises(InputError, match="can't be an offset"):
            run.stream("tokens", start=start)
        with pytest.raises(InputError, match="the name of a stream"):
            run.stream("a\0b", start=0)
        await run.cancel()


@workflow(name="streams.never-ending")
async def never_ending() -> None:
    await go_on.receive()


# Plain code


def test_sync_code_reads_a_stream(engine_url: str) -> None:
    @task(retry=Retry(attempts=2, first=0))
    def flaky() -> None:
        perdure.stream("tokens").append(perdure.info().attempt)
        if perdure.info().attempt == 1:
            raise ConnectionError

    @workflow
    async def trying() -> None:
        await flaky()
        await go_on.receive()
        await say("end")

    with SyncEngine(engine_url) as engine:
        run = engine.start(trying())
        for item in run.stream("tokens", of=object):
            if isinstance(item, Chunk) and item.attempt == 2:
                break
        run.signal(go_on, 1)
        assert left(list(run.stream("tokens", of=object))) == [2, "end"]
        found = run.stream("tokens", of=object, start=1, completed_only=True)
        assert [chunk.value for chunk in found] == [2, "end"]
        assert engine.audit().is_clean
        assert engine.verify().is_clean
