"""A store in memory does everything at once and in the event loop's own thread."""

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import apsw
import pytest

from perdure.core.errors import StaleFence
from perdure.store.opening import open_store
from perdure.store.sqlite.connections.connection import Connection
from perdure.store.sqlite.connections.inline import InlineConnection
from perdure.store.sqlite.store import SqliteStore
from perdure.store.store import Store
from tests.store.builders import HOST, NOW, Driven, begun, sending

pytestmark = pytest.mark.asyncio


@pytest.fixture
async def memory(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SqliteStore]:
    """A store whose test fails if it starts a thread."""

    def no_threads(_: threading.Thread) -> None:
        raise AssertionError("a thread was started")

    monkeypatch.setattr(threading.Thread, "start", no_threads)
    store = await open_store("sqlite:///:memory:")
    assert isinstance(store, SqliteStore)
    yield store
    await store.close()


def result_of(call: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that never waits."""
    with pytest.raises(StopIteration) as returned:
        call.send(None)
    return returned.value.value


async def test_no_thread_is_started(memory: SqliteStore) -> None:
    runs = [Driven() for _ in range(20)]
    await asyncio.gather(*(memory.commit(run.start()) for run in runs))
    await memory.commit(runs[0].first_step())
    assert len(await memory.open_runs(HOST)) == 20
    assert len(await memory.take_over(HOST, HOST, 20)) == 20
    assert len([books async for books in memory.books()]) == 20


async def test_reads_and_changes_do_not_wait(memory: SqliteStore) -> None:
    run = await begun(memory)
    found = result_of(memory.run(run.run_id))
    assert found.run_id == run.run_id
    assert len(result_of(memory.entries(run.run_id))) == 4
    assert result_of(memory.release_runs(HOST)) == 1
    assert [claimed.run_id for claimed in result_of(memory.claim_runs(HOST, 1))] == [run.run_id]


async def test_the_exception_of_a_job_is_in_its_future(memory: SqliteStore) -> None:
    answer = memory._writer.submit(lambda connection: connection.execute("nonsense"))
    assert answer.done()
    assert isinstance(answer.exception(), apsw.SQLError)
    await begun(memory)


async def test_the_exception_of_connecting_reaches_the_caller_of_open() -> None:
    def connect() -> Connection:
        raise OSError("no memory")

    with pytest.raises(OSError, match="no memory"):
        await InlineConnection(connect).open()


async def test_closing_without_having_opened_is_no_error() -> None:
    await InlineConnection(lambda: Connection(":memory:")).close()


async def test_closing_closes_the_connection(memory: SqliteStore) -> None:
    connection = memory._writer.idle_connection
    assert connection is not None
    await memory.close()
    with pytest.raises(apsw.ConnectionClosedError):
        connection.execute("SELECT 1")


async def test_two_stores_in_memory_share_nothing(memory: SqliteStore) -> None:
    other = await open_store("sqlite:///:memory:")
    await begun(other)
    assert await memory.open_runs(HOST) == []
    await other.close()


async def interleaving(store: Store) -> list[str]:
    """The order in which tasks resume that commit and read in one loop."""
    order: list[str] = []
    runs = [Driven() for _ in range(4)]

    async def drive(number: int) -> None:
        run = runs[number]
        await store.commit(run.start())
        order.append(f"{number} started")
        for step in (run.first_step, run.step, run.finish)[: number + 1]:
            await store.commit(step())
            order.append(f"{number} at {len(await store.entries(run.run_id))}")
        await store.commit(sending(runs[-number].message(str(number))))
        order.append(f"{number} sees {len(await store.due_messages(HOST, NOW, 100))}")

    await asyncio.gather(*map(drive, range(4)))
    return order


async def test_tasks_resume_in_the_same_order_every_time() -> None:
    seen = set()
    for _ in range(30):
        store = await open_store("sqlite:///:memory:")
        seen.add(tuple(await interleaving(store)))
        await store.close()
    assert len(seen) == 1


async def test_a_rejected_bundle_leaves_no_transaction_open(memory: SqliteStore) -> None:
    run, other = await begun(memory), await begun(memory)
    await memory.take_over(HOST, HOST, 1)
    stale = run if run.run_id < other.run_id else other
    with pytest.raises(StaleFence):
        await memory.commit(stale.step())
    connection = memory._writer.idle_connection
    assert connection is not None
    assert not connection.in_transaction
