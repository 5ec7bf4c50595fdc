"""The rows of hosts, their heartbeats, and the snapshots that they return."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from time import monotonic
from typing import Any

import apsw
import pytest
from msgspec.structs import replace

from perdure.core.errors import InputError, SchemaTooNew, StaleFence, StoreUnavailable
from perdure.core.hosts.watch import Peer
from perdure.core.ids import HostId, StepId
from perdure.core.messages import Work
from perdure.store.commit.bundle import Bundle
from perdure.store.opening import open_store
from perdure.store.postgres import writing
from perdure.store.rows.hosts import HeartbeatConnection, HostScope, HostSnapshot, NewHost
from perdure.store.store import Store
from tests.store.builders import HOST, NOW, OTHER_HOST, begun, raw, sending

pytestmark = pytest.mark.asyncio

SCOPE = HostScope(HOST, ("gpu",), ("checkout",), NOW + 5000)


def host(name: HostId = HOST) -> NewHost:
    return NewHost(name, 10_000, ("gpu",), NOW)


@pytest.fixture
async def shared(shared_url: str) -> AsyncIterator[Store]:
    """A store that other processes may open."""
    store = await open_store(shared_url)
    yield store
    await store.close()


class Beating:
    """A heartbeat connection in a thread of its own, as a host uses it."""

    def __init__(self, store: Store) -> None:
        line = store.heartbeat_connection()
        assert line is not None
        self._line: HeartbeatConnection = line

    async def beat(self, scope: HostScope = SCOPE, limit_s: float = 5) -> HostSnapshot | None:
        return await asyncio.to_thread(self._line.beat, scope, limit_s)

    async def close(self) -> None:
        await asyncio.to_thread(self._line.close)


@pytest.fixture
async def beating(shared: Store) -> AsyncIterator[Beating]:
    beating = Beating(shared)
    yield beating
    await beating.close()


async def test_the_snapshot_of_an_empty_store_is_empty(store: Store) -> None:
    glance = await store.host_snapshot(SCOPE)
    store.require_known_schema(glance.schema_version)
    with pytest.raises(SchemaTooNew):
        store.require_known_schema(glance.schema_version + 1)
    assert replace(glance, clock_ms=None, schema_version=0) == HostSnapshot(
        (), frozenset(), False, None, None
    )


async def test_a_host_registers_once_and_is_removed(store: Store) -> None:
    for _ in range(2):
        await store.register_host(host())
    assert (await store.host_snapshot(SCOPE)).peers == (Peer(HOST, 0, 10_000),)
    assert await raw(store, "SELECT queues, started_at_ms FROM {}host") == [('["gpu"]', NOW)]
    for _ in range(2):
        await store.remove_host(HOST)
    assert (await store.host_snapshot(SCOPE)).peers == ()


async def test_owners_of_runs_are_in_the_snapshot_with_or_without_a_row(store: Store) -> None:
    await store.register_host(host())
    await begun(store, owner=HOST)
    await begun(store, owner=OTHER_HOST)
    assert (await store.host_snapshot(SCOPE)).holders == {HOST, OTHER_HOST}


async def test_unowned_runs_are_in_the_snapshot_of_hosts_that_have_their_program(
    store: Store,
) -> None:
    await begun(store, owner=None)
    assert (await store.host_snapshot(SCOPE)).has_unowned
    assert not (await store.host_snapshot(HostScope(HOST, (), ("other",), NOW))).has_unowned
    assert await store.count_open(None) == 1
    await store.claim_runs(HOST, 1)
    assert not (await store.host_snapshot(SCOPE)).has_unowned
    assert (await store.count_open(None), await store.count_open(HOST)) == (0, 1)
    assert await store.count_open_of([HOST, OTHER_HOST], 10) == {HOST: 1, OTHER_HOST: 0}


async def test_open_runs_of_hosts_are_counted_up_to_a_number(store: Store) -> None:
    for _ in range(3):
        await begun(store)
    assert await store.count_open_of([HOST], 2) == {HOST: 2}
    assert await store.count_open_of([], 2) == {}


async def test_the_next_due_time_is_in_the_snapshot_of_the_runs_owner(store: Store) -> None:
    run = await begun(store, owner=HOST)
    await store.commit(sending(run.message("later", due_at_ms=SCOPE.until_ms + 1)))
    assert (await store.host_snapshot(SCOPE)).next_due_ms is None
    await store.commit(sending(run.message("soon", due_at_ms=SCOPE.until_ms)))
    assert (await store.host_snapshot(SCOPE)).next_due_ms == SCOPE.until_ms
    assert (
        await store.host_snapshot(HostScope(OTHER_HOST, (), (), SCOPE.until_ms))
    ).next_due_ms is None


async def test_work_is_in_the_snapshot_of_hosts_that_serve_its_queue(store: Store) -> None:
    run = await begun(store)
    bundle = Bundle()
    bundle.put_work(run.fence, Work(run.run_id, StepId("root.1"), run.guid("1"), "gpu", NOW + 7))
    await store.commit(bundle)
    assert (await store.host_snapshot(SCOPE)).next_work_ms == NOW + 7
    assert (await store.host_snapshot(HostScope(HOST, (), (), NOW))).next_work_ms is None


async def test_a_store_of_one_process_needs_no_heartbeat() -> None:
    store = await open_store("sqlite:///:memory:")
    assert store.heartbeat_connection() is None
    await store.close()


async def test_a_heartbeat_updates_the_row_and_returns_a_snapshot(
    shared: Store, beating: Beating
) -> None:
    await shared.register_host(host())
    await begun(shared, owner=OTHER_HOST)
    for _ in range(2):
        await beating.beat()
    seen = await beating.beat()
    assert seen is not None
    assert seen.holders == {OTHER_HOST}
    assert (await shared.host_snapshot(SCOPE)).peers == (Peer(HOST, 3, 10_000),)


async def test_a_host_without_a_row_gets_no_heartbeat(shared: Store, beating: Beating) -> None:
    assert await beating.beat() is None
    await shared.register_host(host())
    assert await beating.beat() is not None
    await shared.remove_host(HOST)
    assert await beating.beat() is None
    assert (await shared.host_snapshot(SCOPE)).peers == ()


async def test_a_host_name_that_a_store_can_not_keep_is_refused(
    shared: Store, beating: Beating
) -> None:
    with pytest.raises(InputError, match="NUL"):
        await beating.beat(HostScope(HostId("a\0b"), (), (), NOW))
    with pytest.raises(InputError, match="NUL"):
        await shared.register_host(host(HostId("a\0b")))


async def test_a_heartbeat_waits_for_a_writer_up_to_a_limit(tmp_path: Path) -> None:
    store = await open_store(f"sqlite:///{tmp_path}/store.db")
    await store.register_host(host())
    beating = Beating(store)
    async with store.transaction(5) as transaction:
        await transaction.execute("CREATE TABLE t (n INTEGER)")
        began = monotonic()
        with pytest.raises(StoreUnavailable, match=r"was locked for 0\.2 s"):
            await beating.beat(limit_s=0.2)
        assert 0.2 <= monotonic() - began < 60
        waiting = asyncio.ensure_future(beating.beat())
        await asyncio.sleep(0.1)
        assert not waiting.done()
    assert await waiting is not None
    await beating.close()
    await store.close()


async def test_heartbeats_alone_do_not_make_the_log_grow_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.store.sqlite.connections.heartbeat_connection.MAX_WAL_PAGES", 20)
    path = tmp_path / "store.db"
    store = await open_store(f"sqlite:///{path}")
    await store.register_host(host())
    beating = Beating(store)
    for _ in range(200):
        await beating.beat()
    assert path.with_name("store.db-wal").stat().st_size < 100 * 4096
    await beating.close()
    await store.close()
    connection = apsw.Connection(str(path))
    assert connection.execute("SELECT beat FROM perdure_host").get == 200
    connection.close()


@pytest.mark.postgres
async def test_a_heartbeat_reconnects_after_a_lost_connection(emptied_postgres: str) -> None:
    store = await open_store(emptied_postgres)
    await store.register_host(host())
    beating = Beating(store)
    assert await beating.beat() is not None
    await raw(
        store,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        " AND datname = current_database()",
    )
    with pytest.raises(StoreUnavailable, match="did not accept a heartbeat"):
        await beating.beat()
    assert await beating.beat() is not None
    await beating.close()
    await store.close()


@pytest.mark.postgres
async def test_a_host_that_is_paused_in_a_commit_does_not_block_a_takeover(
    emptied_postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "MAX_PAUSE_MS", 300)
    paused, heir = await open_store(emptied_postgres), await open_store(emptied_postgres)
    run = await begun(paused, owner=HOST)
    write_rows, has_locks, is_taken = writing.write_rows, asyncio.Event(), asyncio.Event()

    async def pause_once(connection: Any, group: Any) -> Any:
        find_rejected = await write_rows(connection, group)
        if not has_locks.is_set():
            has_locks.set()
            await is_taken.wait()
        return find_rejected

    monkeypatch.setattr(writing, "write_rows", pause_once)
    bundle = run.step()
    bundle.enqueue(run.message("more than one statement"))
    committing = asyncio.ensure_future(paused.commit(bundle))
    await has_locks.wait()
    async with asyncio.timeout(60):
        assert len(await heir.take_over(HOST, OTHER_HOST, 10)) == 1
    is_taken.set()
    with pytest.raises(StaleFence):
        await committing
    await paused.close()
    await heir.close()
