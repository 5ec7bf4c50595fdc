"""The native writer of SQLite, compared with writing statement by statement."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from perdure.core.errors import StaleFence, StoreUnavailable
from perdure.core.streams.chunks import ROOT, NewChunk
from perdure.store.commit.bundle import Bundle
from perdure.store.sqlite.connections import connection as connections
from perdure.store.sqlite.connections.bulk_statements import GroupStatement, one_row
from perdure.store.sqlite.connections.connection import WIDTHS, Connection
from perdure.store.sqlite.connections.opening import MEMORY, connect_first, connect_to_file
from perdure.store.sqlite.store import SqliteStore
from perdure.store.statements import statements
from tests.store.builders import (
    NOW,
    OTHER_HOST,
    Driven,
    assert_books_balance,
    begun,
    contents,
    sending,
)

pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.skipif(connections.compiled is None, reason="it was not compiled here"),
]

INSERTS = GroupStatement("park_runs", [("nobody", None)])
"""A part that changes no row, and expects none."""


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    opened = await SqliteStore.open(str(tmp_path / "store.db"))
    yield opened
    await assert_books_balance(opened)
    await opened.close()


def compiled() -> Any:
    return connections.compiled


def idle(store: SqliteStore) -> Connection:
    connection = store._writer.idle_connection
    assert connection is not None
    return connection


def posting(run_id: str, *balances: object) -> GroupStatement:
    return GroupStatement(
        "post", [(run_id, f"step:{n}", balance) for n, balance in enumerate(balances)]
    )


async def commit_all(store: SqliteStore, *bundles: Bundle) -> list[Any]:
    return await asyncio.gather(*map(store.commit, bundles), return_exceptions=True)


async def balances(store: SqliteStore, run_id: str) -> list[Any]:
    sql = "SELECT balance FROM perdure_ledger WHERE run_id = ? ORDER BY account"
    return await store._reader.run(lambda c: c.execute(sql, (run_id,)).fetchall())


async def forget(store: SqliteStore, run_id: str) -> None:
    """Delete the rows that a test has written outside the books."""
    sql = "DELETE FROM perdure_ledger WHERE run_id = ?"
    await store._writer.run(lambda c: c.execute(sql, (run_id,)))


async def test_the_native_writer_is_loaded_into_the_drivers_library(store: SqliteStore) -> None:
    major, minor, patch = map(int, apsw.sqlite_lib_version().split("."))
    assert compiled().version() == major * 1_000_000 + minor * 1000 + patch
    assert idle(store).is_native


async def test_the_native_writer_knows_the_parameters_of_each_statement(store: SqliteStore) -> None:
    sql = statements("sqlite") | statements("sqlite_graphs")
    for name, width in WIDTHS.items():
        prepared = idle(store).execute(f"EXPLAIN {one_row(sql[name], width)}", [None] * width)
        assert prepared.fetchone() is not None


async def test_the_native_writer_commits_all_or_nothing(store: SqliteStore) -> None:
    unexpected = GroupStatement("park_runs", [("nobody", None)], expected=1)
    assert not idle(store).write([posting("r", 1, 2), unexpected])
    assert await balances(store, "r") == []
    assert not idle(store).in_transaction
    assert idle(store).write([posting("r", 1, 2), INSERTS])
    assert await balances(store, "r") == [(1,), (2,)]
    await forget(store, "r")


@pytest.mark.parametrize(
    "value", [1.5, 1 << 63, "\ud800", {}, [1]], ids=lambda value: type(value).__name__
)
async def test_the_native_writer_refuses_a_value_that_no_column_can_hold(
    store: SqliteStore, value: object
) -> None:
    assert not idle(store).write([posting("r", 1), posting("r", value)])
    assert not idle(store).submit([posting("r", 1), posting("r", value)])
    assert await balances(store, "r") == []


@pytest.mark.parametrize(
    "rows", [[("r", "step:0")], [["r", "step:0", 1]], [None], (("r", "step:0", 1),)], ids=repr
)
async def test_the_native_writer_refuses_a_row_of_another_shape(
    store: SqliteStore, rows: Any
) -> None:
    assert not idle(store).write([GroupStatement("post", rows)])
    assert await balances(store, "r") == []


@pytest.mark.parametrize(
    "parts", [[(99, [], -1)], [(-1, [], -1)], [(0, [])], [None], [("post", [], 0)]], ids=repr
)
async def test_the_native_writer_refuses_a_part_of_another_shape(
    store: SqliteStore, parts: Any
) -> None:
    native = idle(store)._native
    assert native is not None
    assert not native.write(parts)
    assert not native.submit(parts)
    with pytest.raises(TypeError):
        native.write(None)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        native.submit(())  # type: ignore[arg-type]


async def test_a_group_that_breaks_a_constraint_is_rolled_back(store: SqliteStore) -> None:
    assert not idle(store).write([posting("r", 1), posting("r", None)])
    assert await balances(store, "r") == []
    assert not idle(store).in_transaction


async def test_the_native_writer_leaves_an_open_transaction_alone(store: SqliteStore) -> None:
    connection = idle(store)
    connection.execute("BEGIN IMMEDIATE")
    assert not connection.write([posting("r", 1)])
    assert connection.in_transaction
    connection.execute("ROLLBACK")


async def test_a_write_in_place_does_not_wait_for_another_process(
    store: SqliteStore, tmp_path: Path
) -> None:
    other = connect_to_file(str(tmp_path / "store.db"))
    other.execute("BEGIN IMMEDIATE")
    assert not idle(store).write([posting("r", 1)])
    other.close()
    assert idle(store).write([posting("r", 1)])
    await forget(store, "r")


async def test_a_group_waits_for_another_process(store: SqliteStore, tmp_path: Path) -> None:
    runs = [await begun(store) for _ in range(3)]
    other = connect_to_file(str(tmp_path / "store.db"))
    other.execute("BEGIN IMMEDIATE")
    commits = asyncio.ensure_future(commit_all(store, *(run.step() for run in runs)))
    await asyncio.sleep(0.1)
    assert not commits.done()
    other.close()
    assert await commits == [None] * 3


async def test_only_the_bundle_of_a_group_that_does_not_fit_is_rejected(store: SqliteStore) -> None:
    runs = [await begun(store) for _ in range(5)]
    stale = runs[2]
    await store.release_run(stale.fence)
    outcomes = await commit_all(store, *(run.step() for run in runs))
    assert [type(outcome) for outcome in outcomes] == [
        StaleFence if run is stale else type(None) for run in runs
    ]


def bundles_of_every_kind(runs: list[Driven]) -> Callable[[], list[Bundle]]:
    """Each bundle needs other statements; some twice, with rows that depend on the first."""
    first, second, third = runs

    def bundles() -> list[Bundle]:
        given = first.step()
        given.publish(first.run_id, "progress", b"1", NOW)
        given.park(first.fence, "diverged")
        given.drop_work(first.fence, first.step_id)
        message = second.message("hello")
        taken = second.step()
        taken.acknowledge(second.fence, message.guid)
        marked = Bundle()
        marked.mark(third.fence, third.message("late").guid, "stale", "it came late")
        ended = third.finish()
        born = Driven()
        sent = (sending(message), sending(third.message("late")), sending(first.message("x")))
        moved = Bundle()
        moved.forward(first.run_id, first.message("x").guid, second.run_id)
        return [*sent, given, taken, marked, ended, born.start(), moved]

    return bundles


async def test_native_and_statement_by_statement_write_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [Driven() for _ in range(3)]
    groups = [[run.start() for run in runs], [run.first_step() for run in runs]]
    groups.append(bundles_of_every_kind(runs)())
    written = []
    for is_native in (True, False):
        with monkeypatch.context() as patch:
            if not is_native:
                patch.setattr(connections, "compiled", None)
            store = await SqliteStore.open(str(tmp_path / f"{is_native}.db"))
            assert idle(store).is_native is is_native
            for group in groups:
                assert await commit_all(store, *group) == [None] * len(group)
            await assert_books_balance(store)
            written.append(await contents(store))
            await store.close()
    assert written[0] == written[1]
    assert all(written[0][table] for table in ("run", "event", "ledger", "message", "published"))


async def test_groups_and_other_jobs_alternate(store: SqliteStore) -> None:
    runs = [await begun(store) for _ in range(20)]

    async def drive(run: Driven) -> None:
        for _ in range(20):
            await store.commit(run.step())

    async def ask() -> None:
        for _ in range(50):
            await store.return_work(OTHER_HOST, NOW)
            await asyncio.sleep(0)

    await asyncio.gather(ask(), *map(drive, runs))
    for run in runs:
        found = await store.run(run.run_id)
        assert found is not None
        assert (found.seq, found.head) == (run.journal.seq, run.journal.head)


@pytest.mark.parametrize("turns", range(8))
async def test_a_group_that_does_not_fit_leaves_users_transactions_alone(
    store: SqliteStore, turns: int
) -> None:
    """It is written again, statement by statement, before a transaction that begins meanwhile."""
    async with store.transaction(10) as setting_up:
        await setting_up.execute("CREATE TABLE mine (value INTEGER)")
        await setting_up.commit([])
    runs = [await begun(store) for _ in range(3)]
    await store.release_run(runs[0].fence)

    async def use() -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
        async with store.transaction(10) as transaction:
            for value in range(3):
                await transaction.execute("INSERT INTO mine VALUES ($1)", value)
                await asyncio.sleep(0.002)
            raise KeyError("it is rolled back")

    outcomes = await asyncio.gather(
        use(), *(store.commit(run.step()) for run in runs), return_exceptions=True
    )
    assert [type(outcome) for outcome in outcomes] == [KeyError, StaleFence, type(None), type(None)]
    assert await store._reader.run(lambda c: c.execute("SELECT * FROM mine").fetchall()) == []


async def test_a_job_submitted_while_a_group_is_written_runs_after_it(
    store: SqliteStore, tmp_path: Path
) -> None:
    runs = [await begun(store) for _ in range(2)]
    other = connect_to_file(str(tmp_path / "store.db"))
    other.execute("BEGIN IMMEDIATE")
    commits = asyncio.ensure_future(commit_all(store, *(run.step() for run in runs)))
    await asyncio.sleep(0.01)
    asked = store._writer.submit(
        lambda c: c.execute("SELECT seq FROM perdure_run WHERE id = ?", (runs[0].run_id,)).get
    )
    await asyncio.sleep(0.01)
    assert not asked.done()
    other.close()
    assert await asked == runs[0].journal.seq
    assert await commits == [None, None]


async def test_the_native_writer_does_nothing_inside_an_open_transaction(
    store: SqliteStore,
) -> None:
    connection = idle(store)
    connection.execute("BEGIN IMMEDIATE")
    reported: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    assert store._writer.write([posting("r", 1)], reported.set_result)
    assert not await reported
    assert connection.in_transaction
    connection.execute("ROLLBACK")
    assert await balances(store, "r") == []


async def test_a_group_written_by_statement_does_not_end_a_transaction(store: SqliteStore) -> None:
    run = await begun(store)
    connection = idle(store)
    connection.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="while a transaction was open"):
        await store.commit(run.step())
    assert connection.in_transaction
    connection.execute("ROLLBACK")


async def test_the_event_loop_leaves_the_connection_alone_during_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "MAX_WAL_PAGES", 100)
    store = await SqliteStore.open(str(tmp_path / "store.db"))
    runs = [await begun(store) for _ in range(3)]
    for number in range(20):
        bundles = [Bundle() for _ in runs]
        for run, bundle in zip(runs, bundles, strict=True):
            bundle.publish(run.run_id, "large", bytes(1_000_000), NOW + number)
        assert await commit_all(store, *bundles) == [None] * 3
        chunk = Bundle()
        chunk.append_chunk(NewChunk(runs[0].run_id, "s", ROOT, number, b"1", NOW))
        await store.commit(chunk)
    await assert_books_balance(store)
    await store.close()


async def test_without_extensions_groups_are_written_by_statement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(compiled(), "__file__", str(tmp_path / "moved.so"))
    store = await SqliteStore.open(str(tmp_path / "store.db"))
    assert not idle(store).is_native
    assert "SQLite loads no extension" in caplog.text
    runs = [await begun(store) for _ in range(3)]
    assert await commit_all(store, *(run.step() for run in runs)) == [None] * 3
    await assert_books_balance(store)
    await store.close()


async def test_in_a_loop_that_can_not_watch_sockets_groups_are_written_by_statement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def add_reader(*_: object) -> None:
        raise NotImplementedError

    monkeypatch.setattr(asyncio.get_running_loop(), "add_reader", add_reader)
    monkeypatch.setattr(asyncio.get_running_loop(), "remove_reader", add_reader)
    store = await SqliteStore.open(str(tmp_path / "store.db"))
    assert not idle(store).submit([INSERTS])
    runs = [await begun(store) for _ in range(3)]
    assert await commit_all(store, *(run.step() for run in runs)) == [None] * 3
    await assert_books_balance(store)
    await store.close()


async def test_a_closed_native_writer_does_nothing() -> None:
    connection = connect_first(MEMORY, adopt=False)
    connection.begin_writing()
    native = connection._native
    assert native is not None
    connection.close()
    assert not native.write([])
    assert not native.submit([])
    native.checkpoint_wal()
    with pytest.raises(RuntimeError, match="no job has finished"):
        native.take_result()
    native.close()


async def test_a_native_writer_needs_a_connection() -> None:
    with pytest.raises(ValueError, match="load this module"):
        compiled().NativeWriter(0, 0, 0, -1, ())


async def test_a_statement_that_sqlite_can_not_parse_is_reported(store: SqliteStore) -> None:
    with pytest.raises(ValueError, match="SQLite does not understand nonsense"):
        compiled().NativeWriter(idle(store).sqlite3_pointer(), 0, 0, -1, ("nonsense",))


async def test_a_process_can_exit_while_groups_are_written(tmp_path: Path) -> None:
    """No thread waits for one that has released the interpreter's lock for good."""
    program = f"""
import asyncio
from perdure.store.sqlite.store import SqliteStore
from tests.store.builders import Driven

async def main():
    store = await SqliteStore.open({str(tmp_path / "store.db")!r})
    for _ in range(3):
        asyncio.gather(*(store.commit(Driven().start()) for _ in range(300)))
        await asyncio.sleep(0)
    await asyncio.sleep(0.001)

asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program)
    assert await asyncio.wait_for(process.wait(), 60) == 0
    store = await SqliteStore.open(str(tmp_path / "store.db"))
    await assert_books_balance(store)
    await store.close()
