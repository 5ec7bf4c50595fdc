"""An engine serves as soon as it is open; it takes over runs of dead hosts and unowned runs in the background."""

import asyncio
import gc
import logging
from typing import Any

import pytest

import perdure
from perdure import Engine, Handle, RunStatus, Settings, Signal
from perdure.core.errors import StoreUnavailable
from perdure.core.hosts import sharing
from perdure.core.journal import events as e
from perdure.store.postgres.store import PostgresStore
from perdure.store.sqlite.store import SqliteStore
from perdure.testing.probe import Probe
from tests.client.engines import (
    AT_ONCE,
    assert_sound,
    killed,
    opened,
    recorded,
    store_of,
    until,
    until_recorded,
    until_store,
)

pytestmark = pytest.mark.asyncio

go = Signal("serving.go", int)


@perdure.task(name="serving.add")
async def add(a: int, b: int) -> int:
    return a + b


@perdure.workflow(name="serving.waiting")
async def waiting() -> int:
    return await add(1, 0) + await go.receive()


@perdure.workflow(name="serving.adding")
async def adding() -> int:
    return await add(1, 2)


class Hold:
    """Holds back every batch of a takeover, on both kinds of stores, until it is released."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.released = asyncio.Event()
        self.held = 0
        self.after = 0
        """The number of batches that pass first."""
        self.failures: list[Exception] = []
        """The errors of the next batches."""
        for kind in (SqliteStore, PostgresStore):
            for name in ("take_over", "claim_runs"):
                monkeypatch.setattr(kind, name, self._holding(getattr(kind, name)))

    def _holding(self, take: Any) -> Any:
        async def held_back(*args: Any, **options: Any) -> Any:
            if self.failures:
                raise self.failures.pop()
            if self.after:
                self.after -= 1
            else:
                self.held += 1
                await self.released.wait()
            return await take(*args, **options)

        return held_back


@pytest.fixture
def hold(monkeypatch: pytest.MonkeyPatch) -> Hold:
    return Hold(monkeypatch)


async def leave_behind(url: str, *, closes: bool, count: int = 3) -> list[str]:
    """Runs that wait for a signal, and whose host was killed or has closed."""
    async with (opened if closes else killed)(url) as engine:
        runs = [await engine.start(waiting()) for _ in range(count)]
        for run in runs:
            await until_recorded(engine, run, e.ExecutionAwaiting, 2)
    return [run.run_id for run in runs]


async def owners(engine: Engine, runs: list[str]) -> set[Any]:
    return {(await store_of(engine).run(run_id)).owner for run_id in runs}


async def all_resume(engine: Engine, runs: list[str]) -> None:
    for run_id in runs:
        handle: Handle[Any] = engine.handle(run_id)
        await handle.signal(go, 1)
        assert await handle.result(60) == 2


@pytest.mark.parametrize("closes", [False, True], ids=["killed", "closed"])
async def test_a_new_run_completes_while_the_takeover_is_held_back(
    shared_url: str, hold: Hold, closes: bool
) -> None:
    hold.released.set()
    runs = await leave_behind(shared_url, closes=closes)
    hold.released.clear()
    async with asyncio.timeout(60), opened(shared_url) as engine:
        assert await (await engine.start(adding())).result(60) == 3
        await until(lambda: hold.held > 0)
        assert Probe(engine).host_id not in await owners(engine, runs)
        hold.released.set()
        await all_resume(engine, runs)


@pytest.mark.parametrize("closes", [False, True], ids=["killed", "closed"])
async def test_run_that_a_caller_reads_is_taken_over_first(
    shared_url: str, hold: Hold, closes: bool
) -> None:
    hold.released.set()
    first, *others = await leave_behind(shared_url, closes=closes)
    hold.released.clear()
    async with asyncio.timeout(60), opened(shared_url) as engine:
        await all_resume(engine, [first])
        assert Probe(engine).host_id not in await owners(engine, others)
        hold.released.set()
        await all_resume(engine, others)


async def test_a_signal_to_a_run_that_is_not_taken_up_yet_arrives_when_it_is(
    shared_url: str, hold: Hold
) -> None:
    hold.released.set()
    (run_id,) = await leave_behind(shared_url, closes=False, count=1)
    hold.released.clear()
    async with asyncio.timeout(60), opened(shared_url) as engine:
        handle: Handle[Any] = engine.handle(run_id)
        async with engine.transaction():  # no run is taken up before its turn inside a transaction
            assert await handle.status() is RunStatus.BLOCKED
            await handle.signal(go, 1)
        assert Probe(engine).host_id not in await owners(engine, [run_id])
        hold.released.set()
        assert await handle.result(60) == 2


async def test_a_caller_that_gives_up_leaves_no_run_without_a_host(
    shared_url: str, hold: Hold, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold.released.set()
    (run_id,) = await leave_behind(shared_url, closes=False, count=1)
    hold.released.clear()
    is_taken, may_return = asyncio.Event(), asyncio.Event()
    for kind in (SqliteStore, PostgresStore):

        def slow(take: Any) -> Any:
            async def take_run(*args: Any) -> Any:
                taken = await take(*args)
                is_taken.set()
                await may_return.wait()
                return taken

            return take_run

        monkeypatch.setattr(kind, "take_run", slow(kind.take_run))
    async with asyncio.timeout(60), opened(shared_url) as engine:
        handle: Handle[Any] = engine.handle(run_id)
        async with engine.transaction():
            await handle.signal(go, 1)
        asking = asyncio.ensure_future(handle.result())
        await is_taken.wait()
        asking.cancel()
        await asyncio.wait([asking])
        may_return.set()
        assert await handle.result(60) == 2
        hold.released.set()  # the close waits for the takeover


@pytest.mark.parametrize("closes", [False, True], ids=["killed", "closed"])
@pytest.mark.parametrize("is_committed", [False, True], ids=["before", "after"])
async def test_a_host_that_dies_over_the_run_that_a_caller_asked_for_leaves_it_to_the_next(
    shared_url: str,
    hold: Hold,
    closes: bool,
    is_committed: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hold.released.set()
    run_id, other = await leave_behind(shared_url, closes=closes, count=2)
    hold.released.clear()
    is_reached = asyncio.Event()

    def deadly(take: Any) -> Any:
        async def take_run(*args: Any) -> Any:
            if is_committed:
                assert await take(*args) is not None
            is_reached.set()
            await asyncio.get_running_loop().create_future()

        return take_run

    async with asyncio.timeout(60):
        with monkeypatch.context() as patch:
            for kind in (SqliteStore, PostgresStore):
                patch.setattr(kind, "take_run", deadly(kind.take_run))
            async with killed(shared_url) as engine:
                dead = Probe(engine).host_id
                asking = asyncio.ensure_future(engine.handle(run_id).result())
                await is_reached.wait()
                assert (await owners(engine, [run_id]) == {dead}) is is_committed
                asking.cancel()
                await asyncio.wait([asking])
        hold.released.set()
        async with opened(shared_url) as engine:
            await all_resume(engine, [run_id, other])
            for each in (run_id, other):
                assert len(await recorded(engine, engine.handle(each), e.InvokeStarted)) == 1


@pytest.mark.parametrize("batches", [0, 1])
@pytest.mark.parametrize("settings", [AT_ONCE, Settings(grace=60)], ids=["at once", "grace"])
async def test_an_engine_closes_cleanly_in_the_middle_of_a_takeover(
    shared_url: str,
    hold: Hold,
    batches: int,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(sharing, "BATCH", 1)
    hold.released.set()
    runs = await leave_behind(shared_url, closes=False)
    hold.released.clear()
    hold.after = batches
    async with asyncio.timeout(60):
        engine = Engine(shared_url, settings=settings)
        await engine.open()
        await until(lambda: hold.held > 0)
        closing = asyncio.ensure_future(engine.close())
        if settings.grace:
            await asyncio.sleep(0)  # the close has begun
            hold.released.set()
        await closing
        hold.released.set()
        gc.collect()
        assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
        async with opened(shared_url) as engine:
            await all_resume(engine, runs)


@pytest.mark.parametrize(
    "failure", [StoreUnavailable("the store is away", "wait"), ValueError("a bug")]
)
async def test_a_takeover_that_fails_is_logged_and_tried_again(
    shared_url: str, hold: Hold, failure: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    hold.released.set()
    runs = await leave_behind(shared_url, closes=False)
    hold.failures.append(failure)
    async with asyncio.timeout(60), Engine(shared_url) as engine:

        async def are_all_taken() -> bool:
            return await owners(engine, runs) == {Probe(engine).host_id}

        await until_store(are_all_taken)
        logged = [record for record in caplog.records if record.levelno >= logging.WARNING]
        assert any(str(failure) in (record.exc_text or record.getMessage()) for record in logged)
        await all_resume(engine, runs)
        await assert_sound(engine)
