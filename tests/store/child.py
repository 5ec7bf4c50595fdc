"""A process of its own on a store: `python -m tests.store.child URL COMMAND`.

It says `ready` and waits for a line, so that several can begin at once.
"""

import asyncio
import sys
import time

import apsw

from perdure.store.opening import open_store
from perdure.store.sqlite.store import SqliteStore
from tests.store.builders import HOST, Driven, together


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


async def transaction(url: str, moment: str) -> None:
    """Advance the one run of the store together with a row, and wait to be killed at the given moment."""
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
    elif command == "open":
        asyncio.run(only_open(url))
    elif command == "transaction":
        asyncio.run(transaction(url, argument))
    else:
        asyncio.run(hold(url, float(argument)))


if __name__ == "__main__":
    main(*sys.argv[1:])
