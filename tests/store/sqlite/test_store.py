import asyncio
import os
import sqlite3
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from perdure.core.errors import ForeignSqlite, StoreUnavailable
from perdure.core.journal.state import Status
from perdure.store.commit.bundle import Bundle
from perdure.store.opening import open_store
from perdure.store.sqlite.connections.foreign import descriptors
from perdure.store.sqlite.store import SqliteStore
from tests.store.builders import (
    HOST,
    NOW,
    OTHER_HOST,
    Driven,
    assert_books_balance,
    assert_typed,
    begun,
    digest_of_file,
    raw,
    together,
)
from tests.store.children import children

pytestmark = pytest.mark.asyncio


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
async def file_store(path: Path) -> AsyncIterator[SqliteStore]:
    store = await open_store(f"sqlite:///{path}")
    assert isinstance(store, SqliteStore)
    yield store
    await assert_books_balance(store)
    await store.close()


async def pragma(store: SqliteStore, name: str) -> Any:
    return await store._writer.run(lambda c: c.pragma(name))


async def take_steps(store: SqliteStore, run: Driven, count: int) -> None:
    """Each in a group of its own."""
    for _ in range(count):
        await store.commit(run.step())


async def test_commits_are_durable_by_their_settings(file_store: SqliteStore) -> None:
    assert await pragma(file_store, "journal_mode") == "wal"
    assert await pragma(file_store, "synchronous") == 2


async def test_a_run_with_invalid_utf8_in_its_row_is_taken_over_with_the_others(
    file_store: SqliteStore,
) -> None:
    runs = [await begun(file_store) for _ in range(3)]
    where = f"WHERE id = '{runs[1].run_id}'"
    ((version,),) = await raw(file_store, f"SELECT version FROM {{}}run {where}")
    await raw(file_store, f"UPDATE {{}}run SET version = CAST(x'66ff' AS TEXT) {where}")
    taken = await file_store.take_over(HOST, OTHER_HOST, 10)
    assert [(run.run_id, run.owner, run.epoch) for run in taken] == [
        (run.run_id, OTHER_HOST, 2) for run in sorted(runs, key=lambda run: run.run_id)
    ]
    assert {run.run_id: run.damage for run in taken if run.damage} == {
        runs[1].run_id: "its version is b'f\\xff'"
    }
    await raw(file_store, f"UPDATE {{}}run SET version = '{version}' {where}")


async def test_work_with_invalid_utf8_in_its_row_does_not_keep_the_others_from_being_claimed(
    file_store: SqliteStore, caplog: pytest.LogCaptureFixture
) -> None:
    run, bundle = await begun(file_store), Bundle()
    for number in range(3):
        bundle.put_work(run.fence, run.work(f"root.{number}"))
    await file_store.commit(bundle)
    where = "WHERE step = 'root.1'"
    await raw(file_store, f"UPDATE {{}}work SET queue = 'gpu', guid = CAST(x'ff' AS TEXT) {where}")
    claims = await file_store.claim_work(HOST, ["gpu"], "first", NOW, 1000, 10)
    assert [claim.work.step for claim in claims] == ["root.0", "root.2"]
    assert "is damaged" in caplog.text
    # It is leased, so that it is not read at each claim.
    assert await file_store.claim_work(HOST, ["gpu"], "second", NOW, 1000, 10) == []
    await raw(file_store, f"DELETE FROM {{}}work {where}")


async def test_two_processes_write_one_file_at_once(path: Path, file_store: SqliteStore) -> None:
    with children(2, f"sqlite:///{path}", "commit", "100") as writers:
        for writer in writers:
            writer.begin()
        said = [line for writer in writers for line in writer.rest()]
    assert len(said) == len(set(said)) == 200
    books = {books.run_id: books async for books in file_store.books()}
    assert set(books) == set(said)
    assert all(b.ending and b.ending.status == Status.COMPLETED for b in books.values())
    await assert_books_balance(file_store)


async def test_a_locked_file_is_waited_for(path: Path, file_store: SqliteStore) -> None:
    with children(1, f"sqlite:///{path}", "hold", "1.5"):
        began = time.monotonic()
        run = await begun(file_store)
        assert time.monotonic() - began > 0.5
    assert await file_store.run(run.run_id) is not None


async def test_a_locked_file_is_waited_for_longer_than_sqlite_itself_would_wait(
    path: Path, file_store: SqliteStore
) -> None:
    await file_store._writer.run(lambda c: c.set_busy_timeout(1))
    with children(1, f"sqlite:///{path}", "hold", "0.5"):
        await begun(file_store)


async def test_a_locked_file_can_still_be_read(path: Path, file_store: SqliteStore) -> None:
    run = await begun(file_store)
    with children(1, f"sqlite:///{path}", "hold", "60"):
        async with asyncio.timeout(60):
            assert await file_store.run(run.run_id) is not None


@pytest.mark.parametrize("acknowledged", [1, 25, 60])
async def test_kill_loses_nothing_that_was_acknowledged(path: Path, acknowledged: int) -> None:
    url = f"sqlite:///{path}"
    with children(1, url, "commit", "100000") as (victim,):
        victim.begin()
        said = [victim.hear() for _ in range(acknowledged)]
        victim.process.kill()
        said += victim.rest()
    store = await open_store(url)
    try:
        books = {books.run_id: books async for books in store.books()}
        assert len(said) >= acknowledged
        for run_id in said:
            ending = books[run_id].ending  # type: ignore[index]
            assert ending is not None
            assert (ending.status, ending.semaphore) == (Status.COMPLETED, 0)
        await assert_books_balance(store)
        await begun(store)
    finally:
        await store.close()


async def test_a_second_sqlite_library_on_the_file_is_refused(path: Path) -> None:
    await (await open_store(f"sqlite:///{path}")).close()
    stranger = sqlite3.connect(path)
    try:
        with pytest.raises(ForeignSqlite) as foreign:
            await open_store(f"sqlite:///{path}")
        assert_typed(foreign.value, "foreign-sqlite", str(path))
    finally:
        stranger.close()
    await (await open_store(f"sqlite:///{path}")).close()


async def test_a_foreign_descriptor_with_the_number_of_a_closed_one_is_found(
    path: Path,
) -> None:
    store = await open_store(f"sqlite:///{path}")
    ours = {number for held in descriptors._ours.values() for number in held}
    await store.close()
    stranger = os.open(path, os.O_RDWR)
    try:
        assert stranger in ours
        with pytest.raises(ForeignSqlite):
            await open_store(f"sqlite:///{path}")
    finally:
        os.close(stranger)


async def test_a_foreign_descriptor_opened_later_is_found_within_sixty_four_groups(
    path: Path, file_store: SqliteStore
) -> None:
    run = await begun(file_store)
    stranger = os.open(path, os.O_RDWR)
    try:
        with pytest.raises(ForeignSqlite):
            await take_steps(file_store, run, 64)
    finally:
        os.close(stranger)
    again = await run.reload(file_store)
    await file_store.commit(again.step())
    await assert_books_balance(file_store)


async def test_one_process_may_open_a_file_twice_through_perdure(
    path: Path, file_store: SqliteStore
) -> None:
    second = await open_store(f"sqlite:///{path}")
    try:
        run = await begun(file_store)
        again = await run.reload(second)
        await second.commit(again.step())
        for _ in range(70):
            await file_store.commit(Driven().start())
    finally:
        await second.close()
    await begun(file_store)
    await assert_books_balance(file_store)


async def test_many_threads_may_open_a_new_file_at_once(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long opening takes, no thread mistakes another's descriptor for a foreign one."""
    failures: list[BaseException] = []
    connect = apsw.Connection

    def connect_slowly(*arguments: Any, **options: Any) -> apsw.Connection:
        connection = connect(*arguments, **options)
        time.sleep(0.01)
        return connection

    monkeypatch.setattr(apsw, "Connection", connect_slowly)

    async def use() -> None:
        store = await open_store(f"sqlite:///{path}")
        await begun(store)
        await store.close()

    def work() -> None:
        try:
            asyncio.run(use())
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    assert failures == []
    store = await open_store(f"sqlite:///{path}")
    assert len(await store.open_runs(HOST)) == 8
    await store.close()


async def test_five_processes_may_open_a_new_file_at_once(path: Path) -> None:
    url = f"sqlite:///{path}"
    with children(5, url, "open") as openers:
        for opener in openers:
            opener.begin()
        for opener in openers:
            opener.rest()
        assert [opener.process.returncode for opener in openers] == [0] * 5
    store = await open_store(url)
    assert len(await store.open_runs(HOST)) == 5
    await assert_books_balance(store)
    await store.close()


async def test_a_full_disk_is_a_typed_error_and_the_store_works_after_it(
    file_store: SqliteStore,
) -> None:
    run = await begun(file_store)
    pages = await pragma(file_store, "page_count")
    await file_store._writer.run(lambda c: c.execute(f"PRAGMA max_page_count = {pages}"))
    with pytest.raises(StoreUnavailable) as full:
        await take_steps(file_store, run, 200)
    assert_typed(full.value, "store-unavailable", "full")
    await file_store._writer.run(lambda c: c.execute("PRAGMA max_page_count = 100000"))
    await file_store.commit((await run.reload(file_store)).step())
    await assert_books_balance(file_store)


async def test_closing_a_store_releases_the_file(path: Path) -> None:
    store = await open_store(f"sqlite:///{path}")
    await begun(store)
    await store.close()
    assert not path.with_name("store.db-wal").exists()
    connection = apsw.Connection(str(path))
    connection.execute("BEGIN EXCLUSIVE")
    connection.close()


async def test_closing_a_store_leaves_the_file_complete(path: Path) -> None:
    store = await open_store(f"sqlite:///{path}")
    run = Driven()
    await store.commit(together(run.start(), run.first_step()))
    await store.close()
    before = digest_of_file(str(path))
    store = await open_store(f"sqlite:///{path}")
    assert await store.run(run.run_id) is not None
    await store.close()
    assert digest_of_file(str(path)) == before
