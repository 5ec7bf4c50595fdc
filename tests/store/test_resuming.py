"""What a host does when it starts and stops: find owners, claim, load and release runs."""

import asyncio
from typing import Any

import apsw
import asyncpg
import pytest

from perdure.core.errors import StaleFence
from perdure.core.ids import HostId, StepId
from perdure.core.messages import Work
from perdure.store.commit.bundle import Bundle
from perdure.store.rows.hosts import HostScope
from perdure.store.sqlite.store import SqliteStore
from perdure.store.store import Store
from tests.store.builders import (
    HOST,
    NOW,
    OTHER_HOST,
    Driven,
    begun,
    contents,
    some_run_id,
)

pytestmark = pytest.mark.asyncio


async def unowned(store: Store, program: str) -> Driven:
    run = Driven(owner=None)
    await store.commit(run.start(program=program))
    return run


async def test_only_runs_of_the_named_programs_are_claimed(store: Store) -> None:
    runs = {program: await unowned(store, program) for program in ("checkout", "refund", "mail")}
    before = await contents(store)
    assert await store.claim_runs(HOST, 10, []) == []
    assert await store.claim_runs(HOST, 10, ["unknown"]) == []
    assert await contents(store) == before
    claimed = await store.claim_runs(HOST, 10, ("mail", "checkout", "unknown"))
    assert {run.run_id for run in claimed} == {runs["mail"].run_id, runs["checkout"].run_id}
    assert [run.program for run in await store.claim_runs(HOST, 10, None)] == ["refund"]


async def test_runs_of_other_programs_do_not_use_up_the_limit(store: Store) -> None:
    for _ in range(5):
        await unowned(store, "other")
    wanted = [await unowned(store, "mine") for _ in range(3)]
    claimed = await store.claim_runs(HOST, 2, ["mine"])
    assert [run.run_id for run in claimed] == sorted(run.run_id for run in wanted)[:2]


async def test_an_owner_releases_all_its_open_runs_and_is_fenced_out(store: Store) -> None:
    mine = [await begun(store) for _ in range(3)]
    closed, theirs = await begun(store), await begun(store, owner=OTHER_HOST)
    await store.commit(closed.finish())
    assert await store.release_runs(HOST) == 3
    assert await store.release_runs(HOST) == 0
    assert {(run.owner, run.epoch) for run in await store.open_runs(None)} == {(None, 2)}
    for run in mine:
        with pytest.raises(StaleFence):
            await store.commit(run.step())
    await store.commit(theirs.step())
    found = await store.run(closed.run_id)
    assert found is not None
    assert found.epoch == 1
    assert len(await store.claim_runs(OTHER_HOST, 10)) == 3


async def holders(store: Store) -> frozenset[HostId]:
    return (await store.host_snapshot(HostScope(HOST, (), (), NOW))).holders


async def test_the_owners_of_open_runs_are_named_once(store: Store) -> None:
    assert await holders(store) == set()
    await begun(store, owner=None)
    assert await holders(store) == set()
    for owner in ("host-c", "host-a", "host-b", "host-c", "host-a"):
        await begun(store, owner=HostId(owner))
    closed = await begun(store, owner=HostId("host-d"))
    await store.commit(closed.finish())
    assert await holders(store) == {"host-a", "host-b", "host-c"}


async def test_the_hosts_that_have_claimed_work_are_named_once(store: Store) -> None:
    run = await begun(store, owner=None)
    bundle = Bundle()
    for step in ("root.1", "root.2", "root.3"):
        bundle.put_work(run.fence, Work(run.run_id, StepId(step), run.guid(step), "q", 0))
    await store.commit(bundle)
    assert await holders(store) == set()
    await store.claim_work(HostId("host-a"), ["q"], "one", 1, 1000, 2)
    await store.claim_work(HostId("host-b"), ["q"], "two", 1, 1000, 1)
    assert await holders(store) == {"host-a", "host-b"}
    await store.return_work(HostId("host-a"), 2)
    assert await holders(store) == {"host-b"}


async def test_runs_are_loaded_with_their_whole_journals_in_the_order_of_ids(
    store: Store,
) -> None:
    runs = [await begun(store) for _ in range(4)]
    await store.commit(runs[0].step())
    await store.commit(runs[1].finish())
    wanted = [runs[2].run_id, some_run_id(), runs[0].run_id, runs[1].run_id, runs[2].run_id]
    loaded = await store.load(wanted)
    assert [run.run_id for run, _ in loaded] == sorted({run.run_id for run in runs[:3]})
    for run, entries in loaded:
        assert run == await store.run(run.run_id)
        assert entries == await store.entries(run.run_id)
        assert len(entries) == run.seq


async def test_loading_no_runs_returns_nothing(store: Store) -> None:
    await begun(store)
    assert await store.load([]) == []
    assert await store.load([some_run_id()]) == []


async def count_reads(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The read statements from now on."""
    seen: list[str] = []
    if isinstance(store, SqliteStore):

        def trace(_: apsw.Cursor, sql: str, __: Any) -> bool:
            seen.append(sql)
            return True

        await store._reader.run(lambda c: setattr(c, "exec_trace", trace))
    else:
        fetch = asyncpg.Connection.fetch

        async def counted(connection: Any, sql: str, *values: Any) -> Any:
            seen.append(sql)
            return await fetch(connection, sql, *values)

        monkeypatch.setattr(asyncpg.Connection, "fetch", counted)
    return seen


async def test_two_statements_load_any_number_of_runs(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [Driven() for _ in range(300)]
    await asyncio.gather(*(store.commit(run.start()) for run in runs))
    seen = await count_reads(store, monkeypatch)
    assert len(await store.load([run.run_id for run in runs])) == 300
    assert len([sql for sql in seen if sql.startswith("SELECT")]) == 2
    if isinstance(store, SqliteStore):
        assert (seen[0], seen[-1], len(seen)) == ("BEGIN", "COMMIT", 4), "one snapshot"


async def test_rows_and_journals_are_loaded_from_one_snapshot(hosts: tuple[Store, Store]) -> None:
    writer, reader = hosts
    run = await begun(writer)
    ended = asyncio.Event()

    async def write() -> None:
        for _ in range(100):
            await writer.commit(run.step())
        ended.set()

    writing = asyncio.create_task(write())
    seen = set()
    while not ended.is_set():
        ((row, entries),) = await reader.load([run.run_id])
        assert (row.seq, row.head) == (len(entries), entries[-1].hash)
        seen.add(row.seq)
    await writing
    assert len(seen) > 1, "it was read while it was written"
