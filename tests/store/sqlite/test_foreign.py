"""Other code of the process uses the store's file: the store refuses it if it can detect it, and survives it
otherwise."""

import asyncio
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path

import apsw
import pytest
import sqlalchemy
from sqlalchemy.pool import NullPool, QueuePool

from perdure.core.errors import ForeignSqlite
from perdure.store.opening import open_store
from perdure.store.sqlite.connections import connection as connections
from perdure.store.sqlite.connections import foreign
from perdure.store.sqlite.store import SqliteStore
from tests.store.builders import Driven, assert_books_balance, assert_typed, begun
from tests.store.children import children

pytestmark = pytest.mark.asyncio

with_own_locks = pytest.mark.skipif(
    connections.compiled is None or not hasattr(__import__("fcntl"), "F_OFD_SETLK"),
    reason="locks belong to the process here; the tests of refusal cover it",
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    opened = await open_store(f"sqlite:///{path}")
    assert isinstance(opened, SqliteStore)
    yield opened
    await assert_books_balance(opened)
    await opened.close()


@pytest.fixture
def exposed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes locks belong to the process, as on systems without locks of open file descriptions."""
    monkeypatch.setattr(foreign, "own_locks", lambda _: False)


async def visit(url: str) -> None:
    """Another process opens the store, commits and closes it."""
    with children(1, url, "open") as (visitor,):
        visitor.begin()
        visitor.rest()
        assert visitor.process.returncode == 0


@with_own_locks
@pytest.mark.parametrize("means", ["library", "copy"])
async def test_a_run_acknowledged_after_other_code_closed_the_file_is_kept(
    path: Path, means: str
) -> None:
    url = f"sqlite:///{path}"
    with children(1, url, "lose-locks", means) as (host,):
        await visit(url)
        host.begin()
        acknowledged = host.hear()
        host.process.kill()
        host.process.wait()
    store = await open_store(url)
    try:
        assert await store.run(Driven(run_id=acknowledged).run_id) is not None  # type: ignore[arg-type]
        await assert_books_balance(store)
    finally:
        await store.close()


@with_own_locks
async def test_processes_write_one_file_while_other_code_opens_and_closes_it(
    path: Path, store: SqliteStore
) -> None:
    with children(2, f"sqlite:///{path}", "commit-disturbed", "300") as writers:
        for writer in writers:
            writer.begin()
        said = [line for writer in writers for line in writer.rest()]
        assert [writer.process.returncode for writer in writers] == [0, 0]
    assert len(said) == len(set(said)) == 600
    assert {books.run_id async for books in store.books()} == set(said)
    with closing(apsw.Connection(str(path))) as connection:
        assert connection.pragma("integrity_check") == "ok"


@with_own_locks
async def test_a_forked_child_does_not_keep_the_locks_of_a_dead_parent(path: Path) -> None:
    url = f"sqlite:///{path}"
    with children(1, url, "fork") as (parent,):
        forked = int(parent.hear())
        try:
            parent.process.kill()
            parent.process.wait()
            store = await open_store(url)
            async with asyncio.timeout(60):
                await begun(store)
            os.kill(forked, 0)
            await assert_books_balance(store)
            await store.close()
        finally:
            os.kill(forked, signal.SIGKILL)


@with_own_locks
async def test_a_second_library_in_the_process_waits_for_the_stores_lock(
    path: Path, store: SqliteStore
) -> None:
    with closing(sqlite3.connect(":memory:", timeout=0)) as other:
        other.execute("ATTACH ? AS store", (str(path),))
        await store._writer.run(lambda c: c.execute("BEGIN IMMEDIATE"))
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("CREATE TABLE store.theirs (id INTEGER)")
        await store._writer.run(lambda c: c.execute("ROLLBACK"))


WAYS: dict[str, Callable[[Path], sqlite3.Connection]] = {
    "path": sqlite3.connect,
    "text": lambda path: sqlite3.connect(str(path)),
    "bytes": lambda path: sqlite3.connect(os.fsencode(path)),
    "uri": lambda path: sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True),
    "short uri": lambda path: sqlite3.connect(f"file:{path}?immutable=1", uri=True),
    "class": sqlite3.Connection,
}


@pytest.mark.parametrize("way", WAYS)
async def test_sqlite3_can_not_connect_to_an_open_store(
    path: Path, store: SqliteStore, way: str
) -> None:
    with pytest.raises(ForeignSqlite) as refused:
        WAYS[way](path)
    assert_typed(refused.value, "foreign-sqlite", str(path))
    await begun(store)


async def test_sqlite3_can_not_connect_through_a_link(path: Path, store: SqliteStore) -> None:
    link = path.with_name("link.db")
    link.symlink_to(path)
    with pytest.raises(ForeignSqlite):
        sqlite3.connect(link)
    await begun(store)


async def test_sqlite3_connects_to_other_files_and_to_the_store_after_it_is_closed(
    path: Path,
) -> None:
    store = await open_store(f"sqlite:///{path}")
    sqlite3.connect(":memory:").close()
    sqlite3.connect(path.with_name("other.db")).close()
    await begun(store)
    await store.close()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM perdure_run").fetchone() == (1,)


async def test_sqlite3_is_refused_in_threads_too(path: Path, store: SqliteStore) -> None:
    refused: list[BaseException] = []

    def connect() -> None:
        try:
            sqlite3.connect(path)
        except ForeignSqlite as error:
            refused.append(error)

    threads = [threading.Thread(target=connect) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 4
    await begun(store)


@pytest.mark.parametrize("pool", [NullPool, QueuePool])
async def test_sqlalchemy_can_not_connect_to_an_open_store(
    path: Path, store: SqliteStore, pool: type[sqlalchemy.Pool]
) -> None:
    database = sqlalchemy.create_engine(f"sqlite:///{path}", poolclass=pool)
    with pytest.raises(ForeignSqlite):
        database.connect()
    database.dispose()
    await begun(store)
    await visit(f"sqlite:///{path}")
    await begun(store)


async def test_a_store_is_not_opened_while_a_pool_holds_a_connection_to_it(path: Path) -> None:
    await (await open_store(f"sqlite:///{path}")).close()
    database = sqlalchemy.create_engine(f"sqlite:///{path}", poolclass=QueuePool)
    database.connect().close()
    with pytest.raises(ForeignSqlite):
        await open_store(f"sqlite:///{path}")
    database.dispose()
    store = await open_store(f"sqlite:///{path}")
    await begun(store)
    await store.close()


@pytest.mark.usefixtures("exposed")
async def test_with_process_locks_other_code_can_not_open_the_stores_file(
    path: Path,
) -> None:
    store = await open_store(f"sqlite:///{path}")
    try:
        await begun(store)
        shm = path.with_name(f"{path.name}-shm")
        for attempt in (
            path.read_bytes,
            shm.read_bytes,
            lambda: os.open(path, os.O_RDONLY),
            lambda: shutil.copy(path, path.with_name("copy.db")),
        ):
            with pytest.raises(ForeignSqlite) as refused:
                attempt()
            assert_typed(refused.value, "foreign-sqlite", path.name)
        path.with_name("other.txt").write_text("free")
        await begun(store)
        await assert_books_balance(store)
    finally:
        await store.close()
    path.open().close()


@with_own_locks
async def test_a_copy_of_the_file_is_allowed_where_the_locks_survive_it(
    path: Path, store: SqliteStore
) -> None:
    await begun(store)
    shutil.copy(path, path.with_name("copy.db"))
    await begun(store)


WITHOUT_NATIVE = """
import asyncio, sqlite3, sys
sys.modules["perdure.store.sqlite._native"] = None
from perdure.core.errors import ForeignSqlite
from perdure.store.opening import open_store

async def connect():
    store = await open_store(f"sqlite:///{sys.argv[1]}")
    try:
        sqlite3.connect(sys.argv[1])
    except ForeignSqlite:
        print("refused")
    finally:
        await store.close()

asyncio.run(connect())
"""


async def test_sqlite3_is_refused_without_the_native_module_too(path: Path) -> None:
    command = [sys.executable, "-c", WITHOUT_NATIVE, str(path)]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("refused\n", 0), done.stderr


async def test_the_hook_passes_on_watched_events_only() -> None:
    seen: list[str] = []
    passes_on = foreign.EventFilter(lambda event, _: seen.append(event))
    for event in ("builtins.id", "open", "sys.set_asyncgen_hook_finalizer", "sqlite3.connect"):
        passes_on(event, ())
    assert seen == ["open", "sqlite3.connect"]


@pytest.mark.skipif(connections.compiled is None, reason="the hook is in Python here")
async def test_native_hook_is_added_once(store: SqliteStore) -> None:
    assert store is not None  # opening it has added the hook
    with pytest.raises(ValueError, match="watched once"):
        connections.compiled.watch_events(("open",), print)  # type: ignore[union-attr]
