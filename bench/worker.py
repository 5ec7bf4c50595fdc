"""The other process: `python -m bench.worker URL RUNS` serves a queue, and owns RUNS runs that wait for a signal.

Both processes of a measurement import this module: it holds the programs that run in either. The worker prints a line
when all is ready, and ends when its standard input closes, also if the process that started it dies.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import perdure
from perdure import Engine, Signal, task, workflow

QUEUE = "charges"
READY = "ready\n"
END_TIMEOUT_S = 30.0

approval = Signal("approval", int)


@task(name="charge_elsewhere", queue=QUEUE)
async def charge_elsewhere(order: str, items: int) -> dict[str, object]:
    return {"total": 14 * items, "order": order}


@task(name="price_elsewhere", queue=QUEUE)
async def price_elsewhere(item: int) -> int:
    return 14 * item


@task(name="charge_here")
async def charge_here(order: str, items: int) -> dict[str, object]:
    return {"total": 14 * items, "order": order}


@workflow(name="checkout_elsewhere")
async def checkout_elsewhere(steps: int) -> int:
    for _ in range(steps):
        await charge_elsewhere("order-42", 3)
    return steps


@workflow(name="price_all_elsewhere")
async def price_all_elsewhere(items: int) -> int:
    prices = await perdure.gather(*(price_elsewhere(item) for item in range(items)))
    return sum(prices)


@workflow(name="approve")
async def approve() -> int:
    items = await approval.receive()
    await charge_here("order-42", items)
    return items


@workflow(name="checkout_here")
async def checkout_here() -> int:
    await charge_here("order-42", 3)
    return 1


def key_of(number: int) -> str:
    """The start key of a run of `approve`."""
    return f"approve-{number}"


@asynccontextmanager
async def worker(url: str, waiting: int = 0) -> AsyncIterator[None]:
    """A worker process on the store, with so many waiting runs, from when it is ready."""
    command = (sys.executable, "-m", "bench.worker", url, str(waiting))
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        if await process.stdout.readline() != READY.encode():
            raise SystemExit(f"the worker ended by itself, with status {await process.wait()}")
        yield
    finally:
        await end(process, process.stdin)


async def end(process: asyncio.subprocess.Process, stdin: asyncio.StreamWriter) -> None:
    """Let the worker close its engine. One that is too slow is killed, and the report's reader sees that it was."""
    stdin.close()
    try:
        async with asyncio.timeout(END_TIMEOUT_S):
            await process.wait()
    except TimeoutError:
        sys.stderr.write(
            f"the worker closes its engine for more than {END_TIMEOUT_S:.0f} s: killed\n"
        )
        process.kill()
        await process.wait()


async def serve(url: str, waiting: int) -> None:
    async with Engine(url, queues=[QUEUE]) as engine:
        if waiting:
            keys = [key_of(number) for number in range(waiting)]
            await engine.start_many([approve() for _ in keys], keys=keys)
        sys.stdout.write(READY)
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], int(sys.argv[2])))
