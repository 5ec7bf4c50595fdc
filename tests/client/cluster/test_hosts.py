"""Hosts that watch over each other, several of them in one process."""

import asyncio
import logging
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

import perdure
from perdure import Engine, Handle, InputError, Settings, task, workflow
from perdure.core.errors import StoreUnavailable
from perdure.core.ids import HostId
from perdure.core.journal import events as e
from perdure.host import host as host_module
from perdure.host.cluster import identity
from perdure.store.postgres.connections.heartbeat_connection import PostgresHeartbeatConnection
from perdure.store.postgres.connections.opening import Address
from perdure.store.rows.hosts import HostScope
from perdure.store.sqlite.connections import opening
from perdure.store.sqlite.connections.heartbeat_connection import SqliteHeartbeatConnection
from perdure.testing.probe import Probe
from tests.client.engines import (
    opened,
    recorded,
    store_of,
    until,
    until_recorded,
    until_store,
)
from tests.postgres_server import PostgresServer
from tests.store.builders import raw

pytestmark = pytest.mark.asyncio

QUICK = Settings(heartbeat=0.05, stale_after=1, transaction_timeout=0.2, grace=0.1)
HASTY = Settings(heartbeat=0.05, stale_after=1, transaction_timeout=0.2, grace=0.1, concurrency=3)
STRANGER = HostId("stranger")

begun: list[str] = []
"""The run of each attempt that began."""
released: asyncio.Event
"""When it is set, attempts return."""


@pytest.fixture(autouse=True)
async def nothing_begun() -> None:
    global released  # noqa: PLW0603 - tasks are of the module
    released = asyncio.Event()
    begun.clear()


async def stay() -> str:
    begun.append(perdure.info().run_id)
    await released.wait()
    return "done"


@task
async def linger() -> str:
    return await stay()


@task(queue="lingering")
async def linger_there() -> str:
    return await stay()


@workflow
async def lingering() -> str:
    return await linger()


@workflow
async def lingering_there() -> str:
    return await linger_there()


@workflow
async def napping() -> str:
    await perdure.sleep(0.2)
    return "woke"


def host_of(engine: Engine) -> HostId:
    return Probe(engine).host_id


def bodies_of(engine: Engine) -> int:
    return len(Probe(engine).host.executor.runs)


async def rows(engine: Engine) -> list[str]:
    found = await raw(store_of(engine), "SELECT id FROM {}host")
    return sorted(name for (name,) in found)


async def until_alone(engine: Engine) -> None:
    """Wait until the store has a row of that host only: rows of dead hosts are removed last."""

    async def ask() -> bool:
        return await rows(engine) == [host_of(engine)]

    await until_store(ask)


async def owner_of(engine: Engine, handle: Handle[Any]) -> HostId | None:
    run = await store_of(engine).run(handle.run_id)
    assert run is not None
    owner: HostId | None = run.owner
    return owner


# Registering


async def test_a_host_has_a_row_while_it_is_open(shared_url: str) -> None:
    async with opened(shared_url, QUICK) as first:
        async with opened(shared_url, QUICK, ("mail",)) as second:
            assert await rows(first) == sorted([host_of(first), host_of(second)])
            queues = await raw(store_of(first), "SELECT queues FROM {}host ORDER BY queues")
            assert queues == [('["mail"]',), ("[]",)]
        assert await rows(first) == [host_of(first)]


async def test_heartbeats_continue_while_the_event_loop_is_busy(shared_url: str) -> None:
    async with opened(shared_url, QUICK) as busy:
        before = await raw(store_of(busy), "SELECT beat FROM {}host")
        blocked = 2 * QUICK.stale_after
        await asyncio.sleep(0)
        _block(blocked)
        ((after,),) = await raw(store_of(busy), "SELECT beat FROM {}host")
        assert after - before[0][0] > blocked / QUICK.heartbeat / 2


def _block(seconds: float) -> None:
    """As code that forgot to await does."""
    time.sleep(seconds)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"heartbeat": 0}, "heartbeat is 0"),
        ({"heartbeat": 0.049}, "at least 0.05 seconds"),
        ({"heartbeat": float("nan")}, "heartbeat is nan"),
        ({"heartbeat": "1"}, "heartbeat is '1'"),
        ({"heartbeat": 3}, "at least 4 heartbeats"),
        ({"stale_after": 9}, "transaction_timeout 5.0"),
        ({"stale_after": -1}, "stale_after is -1"),
        ({"transaction_timeout": 6}, "twice as long"),
    ],
)
async def test_times_that_do_not_go_together_are_refused(
    settings: dict[str, Any], match: str
) -> None:
    with pytest.raises(InputError, match=match):
        Settings(**settings)


# Taking over


@asynccontextmanager
async def lost(url: str, settings: Settings = QUICK, **kinds: Any) -> AsyncIterator[Engine]:
    """An engine whose peers can't check whether it lives. After the block it sends no more heartbeats, but continues
    and believes that it owns its runs."""
    with pytest.MonkeyPatch.context() as patched:
        elsewhere = identity._here()._replace(machine="elsewhere")
        patched.setattr(identity, "_here", lambda: elsewhere)
        engine = Engine(url, settings=settings, **kinds)
        await engine.open()
    try:
        yield engine
    finally:
        if Probe(engine).is_open:
            Probe(engine).stop_heartbeat()


async def test_runs_of_a_silent_host_are_taken_over_and_its_late_commits_rejected(
    shared_url: str,
) -> None:
    async with lost(shared_url) as silent:
        handle = await silent.start(lingering())
        await until(lambda: len(begun) == 1)
    async with opened(shared_url, QUICK) as heir:
        assert await owner_of(heir, handle) == host_of(silent)
        await until(lambda: len(begun) == 2)
        assert await owner_of(heir, handle) == host_of(heir)
        released.set()
        mine: Handle[str] = heir.handle(handle.run_id)
        assert await mine.result(timeout=60) == "done"
        await until(lambda: bodies_of(silent) == 0)
        assert len(await recorded(heir, mine, e.InvokeCompleted)) == 1
        assert len(await recorded(heir, mine, e.InvokeStarted)) == 2
        await until_alone(heir)
        assert Probe(silent).is_open
        await silent.close()


async def test_the_work_of_a_silent_host_is_put_back(shared_url: str) -> None:
    async with lost(shared_url, queues=("lingering",)) as silent:
        handle = await silent.start(lingering_there())
        await until(lambda: len(begun) == 1)
    async with opened(shared_url, QUICK, ("lingering",)) as heir:
        await until(lambda: len(begun) == 2)
        released.set()
        mine: Handle[str] = heir.handle(handle.run_id)
        assert await mine.result(timeout=60) == "done"
        await silent.close()


async def test_a_host_on_this_machine_that_is_gone_is_succeeded_at_once(shared_url: str) -> None:
    patient = Settings(heartbeat=0.05, stale_after=3600, grace=0)
    gone = Engine(shared_url, settings=patient)
    await gone.open()
    handle = await gone.start(lingering())
    await until(lambda: len(begun) == 1)
    async with opened(shared_url, patient) as heir:
        await Probe(gone).abort()
        await until(lambda: len(begun) == 2)
        released.set()
        mine: Handle[str] = heir.handle(handle.run_id)
        assert await mine.result(timeout=60) == "done"
        await until_alone(heir)


async def test_an_owner_without_a_row_is_succeeded_when_it_was_absent_for_long(
    shared_url: str,
) -> None:
    async with opened(shared_url, QUICK) as engine:
        handle = await engine.start(napping())
        await raw(store_of(engine), f"UPDATE {{}}run SET owner = '{STRANGER}', epoch = epoch + 1")
        began = asyncio.get_running_loop().time()

        async def is_mine() -> bool:
            return await owner_of(engine, handle) != STRANGER

        await until_store(is_mine)
        assert asyncio.get_running_loop().time() - began >= QUICK.stale_after
        assert await handle.result(timeout=60) == "woke"


async def test_a_living_host_elsewhere_is_left_alone(shared_url: str) -> None:
    async with lost(shared_url) as living:
        handle = await living.start(lingering())
        await until(lambda: len(begun) == 1)
        async with opened(shared_url, QUICK) as other:
            await asyncio.sleep(2 * QUICK.stale_after)
            assert await owner_of(other, handle) == host_of(living)
        released.set()
        assert await handle.result(timeout=60) == "done"
        await living.close()
    assert len(begun) == 1


# Considered dead


async def test_host_without_its_row_gets_a_new_id_and_keeps_its_remaining_runs(
    shared_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(shared_url, QUICK, ("lingering",)) as engine:
        handle = await engine.start(lingering())
        there = await engine.start(lingering_there())
        await until(lambda: len(begun) == 2)
        former = host_of(engine)
        await store_of(engine).remove_host(former)
        await until(lambda: host_of(engine) != former)

        async def is_mine() -> bool:
            return await owner_of(engine, handle) == host_of(engine)

        await until_store(is_mine)
        released.set()
        assert await handle.result(timeout=60) == "done"
        assert await there.result(timeout=60) == "done"
        # What ran of its own runs ran on, and so did what it had claimed: no other host had either.
        assert len(await recorded(engine, handle, e.InvokeStarted)) == 1
        assert Counter(begun) == {handle.run_id: 1, there.run_id: 1}
        await until_alone(engine)
    (warning,) = [r for r in caplog.records if "was considered dead" in r.getMessage()]
    assert warning.levelno == logging.WARNING
    for word in (former, "it allows 1 s", "Settings.stale_after"):
        assert word in warning.getMessage()


async def test_host_that_lost_its_runs_stops_their_tasks_and_waiters_get_the_ending(
    shared_url: str,
) -> None:
    async with opened(shared_url, QUICK) as slow, opened(shared_url, QUICK) as heir:
        handle = await slow.start(lingering())
        sleeper = await slow.start(napping())
        waiting = asyncio.ensure_future(sleeper.result(timeout=60))
        await until(lambda: len(begun) == 1)
        former = host_of(slow)
        taken = await store_of(heir).take_over(former, host_of(heir), 10)
        await store_of(heir).remove_host(former)
        await Probe(heir).host.dispatcher.resume(taken)
        await until(lambda: host_of(slow) != former)
        await until(lambda: bodies_of(slow) == 0)
        released.set()
        assert await handle.result(timeout=60) == "done"
        assert await waiting == "woke"
        assert await owner_of(heir, handle) is None
        assert len(await recorded(heir, handle, e.InvokeCompleted)) == 1
        again = await slow.start(napping())
        assert await again.result(timeout=60) == "woke"


Beat = Callable[..., Any]


@pytest.fixture
def deaf(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Blocks all heartbeats, or lets them pass again."""
    is_deaf = False

    def wrap(kind: type[Any]) -> None:
        beat: Beat = kind.beat

        def muffled(line: Any, scope: HostScope, limit_s: float) -> Any:
            if is_deaf:
                raise StoreUnavailable("the store does not hear", "wait")
            return beat(line, scope, limit_s)

        monkeypatch.setattr(kind, "beat", muffled)

    wrap(SqliteHeartbeatConnection)
    wrap(PostgresHeartbeatConnection)

    def set_deaf(value: bool) -> None:
        nonlocal is_deaf
        is_deaf = value

    return set_deaf


async def test_no_body_begins_while_the_last_heartbeat_is_old(
    shared_url: str, deaf: Callable[[bool], None], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "perdure.host")
    async with opened(shared_url, QUICK) as engine:
        deaf(True)
        await asyncio.sleep(QUICK.stale_after)
        handle = await engine.start(lingering())
        await until_recorded(engine, handle, e.InvokeStarted)
        await asyncio.sleep(0.1)
        assert begun == []
        deaf(False)
        await until(lambda: len(begun) == 1)
        released.set()
        assert await handle.result(timeout=60) == "done"
    said = [record.getMessage() for record in caplog.records]
    assert sum("a heartbeat failed to reach the store" in text for text in said) == 1
    assert sum("heartbeats arrive again" in text for text in said) == 1


async def test_no_work_is_claimed_while_the_last_heartbeat_is_old(
    shared_url: str, deaf: Callable[[bool], None]
) -> None:
    """It never began, but would be in doubt if peers took the host for dead."""
    async with opened(shared_url, QUICK, ("lingering",)) as engine:
        deaf(True)
        await asyncio.sleep(QUICK.stale_after)
        handle = await engine.start(lingering_there())
        await asyncio.sleep(0.2)
        assert await raw(store_of(engine), "SELECT claims FROM {}work") == [(0,)]
        deaf(False)
        await until(lambda: len(begun) == 1)
        released.set()
        assert await handle.result(timeout=60) == "done"


async def test_a_body_that_waits_to_begin_can_be_cancelled(
    shared_url: str, deaf: Callable[[bool], None]
) -> None:
    async with opened(shared_url, QUICK) as engine:
        deaf(True)
        await asyncio.sleep(QUICK.stale_after)
        handle = await engine.start(lingering())
        await until_recorded(engine, handle, e.InvokeStarted)
        await handle.cancel("never mind")
        with pytest.raises(perdure.RunCancelled):
            await handle.result(timeout=60)
        deaf(False)
        await asyncio.sleep(0.2)
        assert begun == []


async def test_hosts_that_were_all_deaf_do_not_take_each_other_for_dead(
    shared_url: str, deaf: Callable[[bool], None]
) -> None:
    async with lost(shared_url) as first:
        async with opened(shared_url, QUICK) as second:
            names = [host_of(first), host_of(second)]
            await asyncio.sleep(0.2)
            deaf(True)
            await asyncio.sleep(2 * QUICK.stale_after)
            deaf(False)
            await asyncio.sleep(0.3)
            assert [host_of(first), host_of(second)] == names
            assert await rows(second) == sorted(names)
        await first.close()


# Sharing


@asynccontextmanager
async def several(url: str, count: int, settings: Settings) -> AsyncIterator[list[Engine]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(opened(url, settings)) for _ in range(count)]


async def leave_behind(url: str, count: int) -> None:
    """Unowned runs, each with a step to begin."""
    async with Engine(url, settings=Settings(grace=0, concurrency=1)) as engine:
        blocker = await engine.start(lingering())
        await engine.start_many([lingering() for _ in range(count)])
        await blocker.cancel()
        with pytest.raises(perdure.RunCancelled):
            await blocker.result(timeout=60)
    begun.clear()


async def until_all_are_over(engine: Engine) -> None:
    async def are_over() -> bool:
        open_ids: list[str] = await store_of(engine).open_ids(None, 1)
        return not open_ids

    await until_store(are_over)


async def test_unowned_runs_are_spread_over_the_hosts(shared_url: str) -> None:
    async with several(shared_url, 3, QUICK) as engines:
        await leave_behind(shared_url, 60)
        await until(lambda: sum(map(bodies_of, engines)) == 60)
        counts = sorted(map(bodies_of, engines))
        assert counts[0] >= 5, counts
        assert counts[2] <= 45, counts
        released.set()
        await until_all_are_over(engines[0])


async def test_a_host_at_its_limit_takes_no_more_and_the_rest_is_left_for_others(
    shared_url: str,
) -> None:
    limit = HASTY.concurrency
    await leave_behind(shared_url, 10)
    async with opened(shared_url, HASTY) as full:
        await until(lambda: bodies_of(full) == limit)
        await asyncio.sleep(0.3)
        assert await store_of(full).count_open(host_of(full)) == limit
        assert await store_of(full).count_open(None) == 10 - limit
        async with opened(shared_url, QUICK) as other:
            await until(lambda: bodies_of(other) == 10 - limit)
            released.set()
            await until_all_are_over(full)


async def test_a_dead_host_has_its_row_until_all_that_it_had_is_taken(shared_url: str) -> None:
    async with lost(shared_url) as silent:
        await silent.start_many([lingering() for _ in range(10)])
        await until(lambda: len(begun) == 10)
        dead = host_of(silent)
    limit = HASTY.concurrency
    async with opened(shared_url, HASTY) as full:
        await until(lambda: bodies_of(full) == limit)
        await asyncio.sleep(0.2)
        assert await store_of(full).count_open(dead) == 10 - limit
        assert dead in await rows(full)
        released.set()
        await until_all_are_over(full)

        async def has_gone() -> bool:
            return dead not in await rows(full)

        await until_store(has_gone)
        await silent.close()


async def test_full_host_starts_the_rest_as_slots_become_free(shared_url: str) -> None:
    await leave_behind(shared_url, 10)
    released.set()
    async with opened(shared_url, HASTY) as engine:
        await until_all_are_over(engine)


# Idle


async def test_idle_host_polls_its_database_once_a_second(
    shared_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All statements count, of all connections: the heartbeat's, the reader's, the writer's."""
    statements: list[str] = []
    _count_statements(monkeypatch, statements)
    async with opened(shared_url, queues=("mail",)) as engine:
        await (await engine.start(napping())).result(timeout=60)
        await until(lambda: _beats(statements, 2))  # what the run left to do is done
        statements.clear()
        began = time.monotonic()
        await until(lambda: len(statements) >= 3)
        assert time.monotonic() - began > 1.9
        counted = list(statements)
    assert {sql.split()[0] for sql in counted} == {"UPDATE"}


def _beats(statements: list[str], count: int) -> bool:
    """Whether the last statements were heartbeats."""
    return len(statements) > count and all(sql.startswith("UPDATE") for sql in statements[-count:])


def _count_statements(monkeypatch: pytest.MonkeyPatch, statements: list[str]) -> None:
    """Note every statement of every connection that is made from now on."""
    configure, connect = opening._configure, Address.connect

    def note(_: Any, sql: str, __: Any) -> bool:
        statements.append(sql)
        return True

    def traced(connection: Any) -> None:
        configure(connection)
        connection.exec_trace = note

    async def logged(address: Address) -> Any:
        connection = await connect(address)
        connection.add_query_logger(lambda record: statements.append(record.query))
        return connection

    monkeypatch.setattr(opening, "_configure", traced)
    monkeypatch.setattr(Address, "connect", logged)


async def test_an_idle_store_of_one_process_is_asked_once_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    statements: list[str] = []
    _count_statements(monkeypatch, statements)
    async with opened("sqlite:///:memory:", queues=("mail",)):
        await asyncio.sleep(0.5)
        statements.clear()
        began = time.monotonic()
        await until(lambda: len(statements) >= 2)
        assert len(statements) <= time.monotonic() - began + 1, statements


# Outages


@pytest.mark.postgres
async def test_calls_wait_for_a_database_that_is_away(private_postgres: PostgresServer) -> None:
    async with opened(private_postgres.url(), QUICK) as engine:
        before = await engine.start(napping())
        await asyncio.to_thread(private_postgres.stop, immediate=True)
        starting = asyncio.ensure_future(engine.start(napping(), key="during"))
        waiting = asyncio.ensure_future(before.result())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await engine.start(napping(), key="during")
        assert not starting.done()
        assert not waiting.done()
        await asyncio.to_thread(private_postgres.start)
        assert await waiting == "woke"
        during = await starting
        again = await engine.start(napping(), key="during")
        assert again.run_id == during.run_id
        assert await during.result(timeout=60) == "woke"


@pytest.mark.postgres
async def test_an_engine_closes_while_its_database_is_away(
    private_postgres: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(host_module, "LONGEST_FAREWELL_S", 0.5)
    engine = Engine(private_postgres.url(), settings=QUICK)
    await engine.open()
    handle = await engine.start(lingering())
    await until(lambda: len(begun) == 1)
    await asyncio.to_thread(private_postgres.stop, immediate=True)
    async with asyncio.timeout(60):
        await engine.close()
    assert "other hosts take this host's runs over" in caplog.text
    await asyncio.to_thread(private_postgres.start)
    released.set()
    async with opened(private_postgres.url(), QUICK) as heir:
        mine: Handle[str] = heir.handle(handle.run_id)
        assert await mine.result(timeout=60) == "done"
        await until_alone(heir)


@pytest.mark.postgres
async def test_a_server_that_goes_without_a_word_is_noticed_by_the_system(
    emptied_postgres: str,
) -> None:
    async with opened(emptied_postgres, QUICK) as engine:
        peer = store_of(engine)._commits.connection._transport.get_extra_info("socket")
        assert peer.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        idle = getattr(socket, "TCP_KEEPIDLE", None)
        if idle is not None:
            assert peer.getsockopt(socket.IPPROTO_TCP, idle) == 10
