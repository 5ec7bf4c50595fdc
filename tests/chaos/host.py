"""One of several hosts on a store, to be killed and paused: `python -m tests.chaos.host ORDER`.

It starts its share of the runs, by their keys, and serves the queue until SIGTERM. Every body leaves a line
of `LINE` bytes in the log as it begins. Where the store can't be reached the host asks again.
"""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from threading import Thread
from typing import TypeVar

import msgspec

import perdure
from perdure import Engine, Settings, task, workflow
from perdure.core.errors import StoreError
from perdure.store.postgres.store import PostgresStore
from perdure.store.sqlite.store import SqliteStore

STEPS = 10
LINE = len("00000 00 00 0123456789abcdef 0000000 0000000000000000000 0\n")

T = TypeVar("T")


class Order(msgspec.Struct, frozen=True):
    """What a host does, and where."""

    url: str
    log: str
    runs: int
    """How many all hosts together start."""
    hosts: int
    number: int
    """Which of the hosts this is, from 0."""
    pace_s: float
    """How long a step takes."""
    has_hints: bool = True
    """Without hints hosts find each other's work by polling alone."""
    lease_s: float = 1.5
    stale_after_s: float = 1.5


async def begin(run: int, step: int, *, is_queued: bool) -> None:
    """A body begins: the line says so, with the process and the time."""
    line = b"%05d %02d %02d %.16s %07d %019d %d\n" % (
        *(run, step, perdure.info().attempt, perdure.key().encode()),
        *(os.getpid(), time.monotonic_ns(), is_queued),
    )
    os.write(log, line)
    await asyncio.sleep(order.pace_s)


@task(name="chaos.here")
async def here(run: int, step: int, total: int) -> int:
    await begin(run, step, is_queued=False)
    return total + run + step


@task(name="chaos.there", queue="chaos")
async def there(run: int, step: int, total: int) -> int:
    await begin(run, step, is_queued=True)
    return total + run + step


@workflow(name="chaos.chain")
async def chain(run: int) -> int:
    total = 0
    for step in range(STEPS):
        total = await (there if step % 3 == 1 else here)(run, step, total)
    return total


def total_of(run: int) -> int:
    return sum(run + step for step in range(STEPS))


async def insist(do: Callable[[], Awaitable[T]]) -> T:
    while True:
        try:
            return await do()
        except StoreError:
            await asyncio.sleep(0.1)


def lose_hints() -> None:
    """From now on this process sends and receives no hints."""
    for store in (SqliteStore, PostgresStore):
        store.hint_channel = lambda *_: None  # type: ignore[method-assign]


async def main() -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    # A step may be unlucky many times here, and must not be failed for it, nor wait long.
    settings = Settings(
        lease=order.lease_s,
        heartbeat=order.stale_after_s / 8,
        stale_after=order.stale_after_s,
        transaction_timeout=order.stale_after_s / 2,
        max_doubts=90,
        probation=0.05,
        grace=20,
    )
    engine = Engine(order.url, queues=["chaos"], settings=settings)
    await insist(engine.open)
    try:
        share = range(order.number, order.runs, order.hosts)
        await insist(lambda: engine.start_many([chain(run) for run in share], keys=map(str, share)))
        await stopped.wait()
    finally:
        await engine.close()


def end_with_director() -> None:
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    order = msgspec.json.decode(sys.argv[1], type=Order)
    log = os.open(order.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    if not order.has_hints:
        lose_hints()
    Thread(target=end_with_director, daemon=True).start()
    asyncio.run(main())
