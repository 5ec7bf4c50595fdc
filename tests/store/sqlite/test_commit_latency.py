"""Lone commits in the event loop's thread, and checkpoints of the log between groups."""

import asyncio
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any

import apsw
import pytest

from perdure.store.commit.bundle import Bundle
from perdure.store.sqlite import commit_latency
from perdure.store.sqlite.commit_latency import CommitLatency
from perdure.store.sqlite.connections import connection
from perdure.store.sqlite.store import SqliteStore
from tests.store.builders import assert_books_balance, begun


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes no disk count as slow, however busy the machine is."""
    monkeypatch.setattr(commit_latency, "SLOW_S", 1.0)


@pytest.fixture(params=["natively", "statement by statement"])
async def store(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Any:
    if request.param == "statement by statement":
        monkeypatch.setattr(connection, "compiled", None)
    opened = await SqliteStore.open(str(tmp_path / "store.db"))
    yield opened
    await assert_books_balance(opened)
    await opened.close()


@pytest.fixture
async def threads(store: SqliteStore) -> list[bool]:
    """For each commit of a group, whether it was made in the event loop's thread."""
    seen: list[bool] = []

    def trace(event: dict[str, Any]) -> None:
        if event["sql"] == "COMMIT":
            seen.append(current_thread() is main_thread())

    await store._writer.run(lambda c: c.trace_v2(apsw.SQLITE_TRACE_STMT, trace))
    return seen


async def test_a_lone_bundle_is_committed_in_place(store: SqliteStore, threads: list[bool]) -> None:
    run = await begun(store)
    await store.commit(run.step())
    assert threads == [True, True]


async def test_bundles_submitted_together_are_written_by_the_writers_thread(
    store: SqliteStore, threads: list[bool]
) -> None:
    runs = [await begun(store) for _ in range(5)]
    threads.clear()
    await asyncio.gather(*(store.commit(run.step()) for run in runs))
    assert threads == [False]


async def test_after_slow_commits_bundles_are_not_committed_in_the_event_loop(
    store: SqliteStore, threads: list[bool]
) -> None:
    run = await begun(store)
    for _ in range(20):
        store._groups.latency.record(10.0)
    threads.clear()
    await store.commit(run.step())
    assert threads == [False]


async def test_after_fast_commits_bundles_are_committed_in_the_event_loop_again(
    store: SqliteStore, threads: list[bool]
) -> None:
    run = await begun(store)
    store._groups.latency.record(2 * commit_latency.SLOW_S / commit_latency.WEIGHT)
    assert not store._groups.latency.is_low
    for _ in range(100):
        await store.commit(run.step())
    assert threads[-1]


async def test_a_lone_bundle_does_not_block_the_event_loop_while_the_file_is_locked(
    store: SqliteStore, threads: list[bool], tmp_path: Path
) -> None:
    run = await begun(store)
    threads.clear()
    other = apsw.Connection(str(tmp_path / "store.db"))
    other.execute("BEGIN IMMEDIATE")
    commit = asyncio.ensure_future(store.commit(run.step()))
    for _ in range(20):
        await asyncio.sleep(0.005)
    assert not commit.done()
    other.execute("ROLLBACK")
    other.close()
    await commit
    assert threads == [False]


async def test_a_lone_bundle_that_is_rejected_leaves_no_transaction_open(
    store: SqliteStore,
) -> None:
    run = await begun(store)
    run.fence.broken = True
    with pytest.raises(Exception, match="an earlier bundle"):
        await store.commit(run.step())
    connection = store._writer.idle_connection
    assert connection is not None
    assert not connection.in_transaction
    await store.commit(Bundle())


@pytest.fixture
def short_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MAX_WAL_PAGES", 50)


@pytest.mark.usefixtures("short_log")
async def test_a_long_log_is_checkpointed(store: SqliteStore, tmp_path: Path) -> None:
    run = await begun(store)
    for _ in range(200):
        await store.commit(run.step())
    pages = (tmp_path / "store.db-wal").stat().st_size / 4096
    assert 50 <= pages < 100, "200 commits of at least 3 pages went through a log of about 50"


@pytest.mark.usefixtures("short_log")
async def test_the_log_of_large_groups_is_checkpointed(store: SqliteStore, tmp_path: Path) -> None:
    runs = [await begun(store) for _ in range(20)]
    for _ in range(50):
        await asyncio.gather(*(store.commit(run.step()) for run in runs))
    pages = (tmp_path / "store.db-wal").stat().st_size / 4096
    assert 50 <= pages < 150, "50 commits of at least 10 pages went through a log of about 50"


@pytest.mark.parametrize(("took_s", "is_low"), [(0.1, True), (5.0, False)])
def test_the_average_follows_the_newest_commits(took_s: float, is_low: bool) -> None:
    recent = CommitLatency()
    for took_before_s in (5.0, 0.1):
        for _ in range(50):
            recent.record(took_before_s)
    for _ in range(50):
        recent.record(took_s)
    assert recent.is_low is is_low
