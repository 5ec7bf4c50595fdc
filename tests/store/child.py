"""A process of its own on a store: `python -m tests.store.child URL COMMAND`.

It prints `ready` and waits for a line, so that several can begin at once.
"""

import asyncio
import os
import signal
import sqlite3
import sys
import threading
import time
from contextlib import closing, suppress
from pathlib import Path

import apsw

from perdure.store.opening import open_store
from perdure.store.sqlite.store import SqliteStore
from tests.store.builders import HOST, Driven, together


def say(word: str) -> None:
    sys.stdout.write(word + "\n")
    sys.stdout.flush()


async def commit(url: str, count: int, *, is_started: bool = False) -> None:
    """Commit `count` runs of one step, two bundles each, and name each run once it is durable."""
    store = await open_store(url)
    if not is_started:
        wait_for_start()

    async def one() -> None:
        run = Driven()
        await store.commit(together(run.start(), run.first_step()))
        await store.commit(run.finish())
        say(run.run_id)

    while count > 0:
        await asyncio.gather(*(one() for _ in range(min(count, 10))))
        count -= 10
    await store.close()


async def only_open(url: str) -> None:
    wait_for_start()
    store = await open_store(url)
    await store.commit(Driven().start())
    await store.close()


async def hold(url: str, seconds: float) -> None:
    """Hold the write lock of a SQLite file."""
    store = await open_store(url)
    assert isinstance(store, SqliteStore)

    def job(connection: apsw.Connection) -> None:
        connection.execute("BEGIN IMMEDIATE")
        say("ready")
        time.sleep(seconds)
        connection.execute("ROLLBACK")

    await store._writer.run(job)
    await store.close()


async def commit_disturbed(url: str, count: int) -> None:
    """As `commit`, while a thread reads the file with other code, and closes it, as often as it can."""
    is_over = threading.Event()
    path = url.removeprefix("sqlite:///")

    def disturb() -> None:
        while not is_over.is_set():
            read_beside(path)
            copy_files(path)

    thread = threading.Thread(target=disturb)
    wait_for_start()
    thread.start()
    try:
        await commit(url, count, is_started=True)
    finally:
        is_over.set()
        thread.join()


def read_beside(path: str) -> None:
    """Use the file with a second SQLite library, in a way that raises no audit event, and close it."""
    memory = sqlite3.connect("file::memory:", uri=True)
    with suppress(sqlite3.OperationalError), closing(memory) as other:
        other.execute("ATTACH ? AS store", (f"file:{path}?mode=ro",))
        other.execute("SELECT count(*) FROM store.perdure_run").fetchone()


def copy_files(path: str) -> None:
    for suffix in ("", "-shm"):
        with suppress(FileNotFoundError):
            Path(path + suffix).read_bytes()


async def lose_locks(url: str, means: str) -> None:
    """Close the files with other code, let another process open and close the store, commit a run and name it."""
    path = url.removeprefix("sqlite:///")
    store = await open_store(url)
    await store.commit(Driven().start())
    {"library": read_beside, "copy": copy_files}[means](path)
    wait_for_start()
    run = Driven()
    await store.commit(run.start())
    say(run.run_id)
    sys.stdin.readline()


async def fork(url: str) -> None:
    """Fork in the middle of a transaction, and print the pid of the child, which stays alive."""
    store = await open_store(url)
    assert isinstance(store, SqliteStore)
    await store._writer.run(lambda connection: connection.execute("BEGIN IMMEDIATE"))
    pid = os.fork()
    if pid == 0:
        signal.pause()
    say("ready")
    say(str(pid))
    await asyncio.sleep(600)


async def transaction(url: str, moment: str) -> None:
    """Advance the one run of the store together with a row, and wait to be killed at the given point."""
    store = await open_store(url)
    (run_id,) = [run.run_id for run in await store.open_runs(HOST)]
    run = await Driven(run_id=run_id).reload(store)
    wait_for_start()
    async with store.transaction(60) as tx:
        await tx.execute("INSERT INTO orders (id, note) VALUES ($1, $2)", 1, "killed")
        if moment == "after the commit":
            await tx.commit([run.step()])
        say(moment)
        await asyncio.sleep(60)


def wait_for_start() -> None:
    say("ready")
    sys.stdin.readline()


def main(url: str, command: str, argument: str = "") -> None:
    if command == "commit":
        asyncio.run(commit(url, int(argument)))
    elif command == "commit-disturbed":
        asyncio.run(commit_disturbed(url, int(argument)))
    elif command == "lose-locks":
        asyncio.run(lose_locks(url, argument))
    elif command == "fork":
        asyncio.run(fork(url))
    elif command == "open":
        asyncio.run(only_open(url))
    elif command == "transaction":
        asyncio.run(transaction(url, argument))
    else:
        asyncio.run(hold(url, float(argument)))


if __name__ == "__main__":
    main(*sys.argv[1:])
