"""Engines on one store wake each other. Their polls are so far apart that a test that needs one runs out of time."""

import asyncio
import inspect
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

import perdure
from perdure import Engine, Handle, RunCancelled, RunStatus, Settings, Signal, task, workflow
from perdure.core.hosts.hints import Hint
from perdure.core.ids import HostId
from perdure.core.messages import Message
from perdure.store.postgres.connections.hint_listener import PostgresHints
from perdure.store.rows.hosts import HostSnapshot
from perdure.store.sqlite.hint_sockets import SqliteHints
from perdure.testing.probe import Probe
from tests.client.engines import assert_sound, opened, store_of, until, until_store

HOUR_S = 3600
RARE = Settings(heartbeat=HOUR_S, stale_after=10 * HOUR_S, lease=HOUR_S)
FREQUENT = Settings(heartbeat=0.05, stale_after=10)
LIMIT_S = 60

go = Signal("go", int)


@task(name="hints.far", queue="far")
async def far(number: int) -> int:
    return number + 1


@workflow(name="hints.queued")
async def queued(number: int) -> int:
    return await far(await far(number))


@workflow(name="hints.waiting")
async def waiting() -> int:
    return await go.receive() + await go.receive()


@workflow(name="hints.talking")
async def talking(count: int) -> int:
    for number in range(count):
        perdure.stream("words").append(number)
        await go.receive()
    return count


@workflow(name="hints.sleeping")
async def sleeping() -> None:
    await perdure.sleep(HOUR_S)


@asynccontextmanager
async def two(url: str, queues: tuple[str, ...] = ()) -> AsyncIterator[tuple[Engine, Engine]]:
    """A host, and another one that serves the queues. Their heartbeats are an hour apart."""
    async with (
        Engine(url, settings=RARE) as one,
        Engine(url, settings=RARE, queues=queues) as other,
    ):
        yield one, other
        await assert_sound(one)


@asynccontextmanager
async def front_end(url: str) -> AsyncIterator[Engine]:
    async with Engine(url, settings=RARE, hosts=False) as front:
        yield front


async def test_work_on_a_queue_and_its_result_wake_the_other_host(shared_url: str) -> None:
    async with two(shared_url, ("far",)) as (one, _):
        run = await one.start(queued(1))
        assert await run.result(LIMIT_S) == 3


async def test_a_signal_from_another_host_and_the_result_are_hints(shared_url: str) -> None:
    async with two(shared_url) as (one, other):
        run = await one.start(waiting())
        there = other.handle(run.run_id)
        await there.signal(go, 1)
        await there.signal(go, 2)
        assert await there.result(LIMIT_S) == 3


async def test_a_hint_that_arrives_during_a_poll_leads_to_another_poll(
    shared_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(shared_url, RARE) as one, front_end(shared_url) as front:
        runs = await one.start_many([waiting(), waiting()])
        first, second = [front.handle(run.run_id) for run in runs]
        for each in (first, second):
            await each.signal(go, 1)
            await until_waiting(each)
        host, store = Probe(one).host, store_of(one)
        act, due_messages = host.hint_arrived, store.due_messages
        heard: list[Hint] = []

        def hear(hint: Hint) -> None:
            heard.append(hint)
            act(hint)

        async def read_before_the_next_signal(*values: Any) -> list[Message]:
            found: list[Message] = await due_messages(*values)
            if found:
                monkeypatch.setattr(store, "due_messages", due_messages)
                heard.clear()
                await second.signal(go, 2)
                await until(lambda: any(hint.messages for hint in heard))
            return found

        monkeypatch.setattr(host, "hint_arrived", hear)
        monkeypatch.setattr(store, "due_messages", read_before_the_next_signal)
        await first.signal(go, 2)
        assert await second.result(LIMIT_S) == 3
        assert await first.result(LIMIT_S) == 3


async def test_a_cancel_from_a_front_end_wakes_the_owner(shared_url: str) -> None:
    async with opened(shared_url, RARE) as one, front_end(shared_url) as front:
        run = await one.start(waiting())
        there = front.handle(run.run_id)
        await there.cancel("not wanted")
        with pytest.raises(RunCancelled, match="not wanted"):
            await there.result(LIMIT_S)


async def test_what_a_front_end_starts_wakes_a_host(shared_url: str) -> None:
    async with opened(shared_url, RARE) as one, front_end(shared_url) as front:
        run = await front.start(waiting())
        await run.signal(go, 1)
        async with front.transaction() as tx:
            await tx.fetch("SELECT 1")
            other = await front.start(waiting())
            await other.signal(go, 5)
        await other.signal(go, 6)
        await run.signal(go, 2)
        assert await run.result(LIMIT_S) == 3
        assert await other.result(LIMIT_S) == 11
        assert await one.handle(run.run_id).status() is RunStatus.COMPLETED


async def test_followers_of_a_journal_and_of_a_stream_wake_with_each_commit(
    shared_url: str,
) -> None:
    async with opened(shared_url, RARE) as one, front_end(shared_url) as front:
        run = await one.start(talking(3))
        there = front.handle(run.run_id)
        seen: list[int] = []

        async def follow() -> None:
            seen.extend([entry.seq async for entry in there.events()])

        following = asyncio.ensure_future(follow())
        words = there.stream("words", of=int, completed_only=False)
        for number in range(3):
            async with asyncio.timeout(LIMIT_S):
                chunk = await anext(words)
            assert isinstance(chunk, perdure.Chunk)
            assert chunk.value == number
            await run.signal(go, 0)
        async with asyncio.timeout(LIMIT_S):
            assert [each async for each in words] == []
            await following
        assert seen == list(range(len(seen)))


async def test_what_a_host_hands_back_is_taken_over_at_once(shared_url: str) -> None:
    async with opened(shared_url, RARE) as one:
        async with Engine(shared_url, settings=RARE) as other:
            run = await other.start(waiting())
            await run.signal(go, 1)
        there = one.handle(run.run_id)

        async def is_here() -> bool:
            row = await store_of(one).run(run.run_id)
            assert row is not None
            return bool(row.owner == Probe(one).host_id)

        await until_store(is_here)
        await there.signal(go, 2)
        assert await there.result(LIMIT_S) == 3


async def test_a_signal_to_a_topic_wakes_the_host_whose_run_waits_for_it(shared_url: str) -> None:
    graph = perdure.load_graph(
        """
        graph: hints-topic
        input: {number: int}
        activities:
          answer: {hook: hints-answer, key: number}
          done: {output: answer}
        transitions: [answer -> done]
        """
    )
    program = perdure.GraphProgram(graph)
    async with two(shared_url) as (one, other), front_end(shared_url) as front:
        for number, sender in enumerate((one, other, front)):
            run = await one.start(program(number=number))
            await until_waiting(run)
            await sender.send("hints-answer", number, f"from {number}")
            assert await run.result(LIMIT_S) == f"from {number}"


async def test_a_thousand_waiting_callers_cost_one_statement_for_each_wake_up(
    shared_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(shared_url, RARE) as one, front_end(shared_url) as front:
        runs = await one.start_many([waiting() for _ in range(1000)])
        statements = counted(front, monkeypatch)
        results = [asyncio.ensure_future(front.handle(run.run_id).result()) for run in runs]
        watchers = Probe(front).host.dispatcher.watchers
        await until(lambda: len(watchers.awaited) == len(runs))
        for number in (0, 1, 2):
            await runs[number].signal(go, number)
            await runs[number].signal(go, 1)
            assert await results[number] == number + 1
        waiting_for = [result for result in results if not result.done()]
        assert len(waiting_for) == 997
        # Each caller reads its run once as it begins to wait, and once to decode its result.
        assert statements["run"] == 1003
        # A late hint may add a look; a statement for each caller would be thousands.
        assert statements["progress"] < 30
        assert not {*statements} - {"run", "progress"}
        for result in waiting_for:
            result.cancel()


async def until_waiting(run: Handle[Any]) -> None:
    """Wait until the run waits for a signal."""

    async def ask() -> bool:
        return bool((await run.waits()).signals)

    await until_store(ask)


READS = ("run", "runs", "entries", "progress", "messages", "host_snapshot", "due_messages")


def counted(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, names: Sequence[str] = READS
) -> Counter[str]:
    """Counts these calls of the engine to its store, from now on."""
    store, counts = store_of(engine), Counter[str]()

    def count(name: str) -> Callable[..., Any]:
        read = getattr(store, name)

        async def counting(*values: Any, **named: Any) -> Any:
            counts[name] += 1
            return await read(*values, **named)

        return counting

    for name in names:
        monkeypatch.setattr(store, name, count(name))
    return counts


async def test_hosts_alone_send_no_hints(shared_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[bytes] = []

    async def send(_: object, to: HostId | None, data: bytes) -> None:
        sent.append(data)

    monkeypatch.setattr(SqliteHints, "send", send)
    monkeypatch.setattr(PostgresHints, "send", send)
    async with opened(shared_url, FREQUENT, ("far",)) as one:
        assert len(sent) == 1  # that it is there
        run = await one.start(queued(1))
        assert await run.result(LIMIT_S) == 3
        waits = await one.start(waiting())
        await waits.signal(go, 1)
        await waits.signal(go, 1)
        assert await waits.result(LIMIT_S) == 2
        assert len(sent) == 1


async def test_without_any_hint_polling_finds_everything(
    shared_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lose(_: object, to: HostId | None, data: bytes) -> None:
        """Every hint is lost."""

    monkeypatch.setattr(SqliteHints, "send", lose)
    monkeypatch.setattr(PostgresHints, "send", lose)
    async with (
        opened(shared_url, FREQUENT) as one,
        opened(shared_url, FREQUENT, ("far",)) as other,
        Engine(shared_url, settings=FREQUENT, hosts=False) as front,
    ):
        assert await (await one.start(queued(1))).result(LIMIT_S) == 3
        run = await one.start(waiting())
        for sender in (other, front):
            await sender.handle(run.run_id).signal(go, 1)
        assert await front.handle(run.run_id).result(LIMIT_S) == 2
        started: Handle[int] = await front.start(queued(5))
        assert await started.result(LIMIT_S) == 7
        talk = await one.start(talking(1))
        words = front.handle(talk.run_id).stream("words", of=int)
        async with asyncio.timeout(LIMIT_S):
            await anext(words)
        await other.handle(talk.run_id).signal(go, 0)
        async with asyncio.timeout(LIMIT_S):
            assert [entry.seq async for entry in front.handle(talk.run_id).events()]


async def test_doubled_late_and_false_hints_change_nothing(
    shared_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    delayed: list[asyncio.Task[None]] = []

    def faulty(send: Callable[..., Any]) -> Callable[..., Any]:
        async def late(self: Any, data: bytes) -> None:
            await asyncio.sleep(0.05)
            await send(self, None, data)
            await send(self, HostId("h_dead"), data)

        async def twice(self: Any, to: HostId | None, data: bytes) -> None:
            await send(self, to, data)
            await send(self, to, data)
            delayed.append(asyncio.ensure_future(late(self, data)))

        return twice

    for channel in (SqliteHints, PostgresHints):
        monkeypatch.setattr(channel, "send", faulty(channel.send))
    async with two(shared_url, ("far",)) as (one, other), front_end(shared_url) as front:
        runs = [await front.start(queued(number)) for number in range(5)]
        assert [await run.result(LIMIT_S) for run in runs] == [n + 2 for n in range(5)]
        run = await other.start(waiting())
        await one.handle(run.run_id).signal(go, 1)
        await front.handle(run.run_id).signal(go, 2)
        assert await front.handle(run.run_id).result(LIMIT_S) == 3
        await asyncio.gather(*delayed)


@pytest.mark.parametrize("runs", [500, pytest.param(10_000, marks=pytest.mark.deep)])
async def test_an_idle_host_asks_the_store_nothing_but_its_heartbeat(
    runs: int, shared_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The heartbeat is one statement. Runs sleep, and another host and a front end are there."""
    async with (
        opened(shared_url, FREQUENT) as idle,
        Engine(shared_url, settings=RARE),
        front_end(shared_url),
    ):
        await idle.start_many([sleeping() for _ in range(runs)])
        beats: list[HostSnapshot] = []
        host = Probe(idle).host
        show = host.snapshot_taken

        def count_beat(snapshot: HostSnapshot, at_ms: int) -> None:
            beats.append(snapshot)
            show(snapshot, at_ms)

        monkeypatch.setattr(host, "snapshot_taken", count_beat)
        await until(lambda: len(beats) > 1)  # the announcements of the others have arrived
        asynchronous = [
            name
            for name, _ in inspect.getmembers(type(store_of(idle)), inspect.iscoroutinefunction)
        ]
        calls = counted(idle, monkeypatch, asynchronous)
        await until(lambda: len(beats) > 20)
        assert not calls
