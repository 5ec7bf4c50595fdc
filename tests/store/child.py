"""A process of its own on a store: `python -m tests.store.child URL COMMAND`.

It says `ready` and waits for a line, so that several can begin at once.
"""

import asyncio
import sys
import time

import apsw

from perdure.store.opening import open_store
from perdure.store.sqlite.store import SqliteStore
from tests.store.builders import Driven, together


def say(word: str) -> None:
    sys.stdout.write(word + "\n")
    sys.stdout.flush()


async def commit(url: str, count: int) -> None:
    """Commit `count` runs of one step, two bundles each, and name each run once it is durable."""
    store = await open_store(url)
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


def wait_for_start() -> None:
    say("ready")
    sys.stdin.readline()


def main(url: str, command: str, argument: str = "") -> None:
    if command == "commit":
        asyncio.run(commit(url, int(argument)))
    elif command == "open":
        asyncio.run(only_open(url))
    else:
        asyncio.run(hold(url, float(argument)))


if __name__ == "__main__":
    main(*sys.argv[1:])
