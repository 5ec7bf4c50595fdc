"""A process that may be killed: `python -m tests.host.bus.shop STORE REDIS RUNS`.

It starts so many runs, whose events go to a stream of Redis, and ends when all are over and published. Started again,
it continues with the same runs.
"""

import asyncio
import sys

import perdure
from perdure import Engine, RedisStream, task, workflow

STEPS = 10


@task
async def wrap(n: int) -> int:
    return n


@workflow
async def wrapped(steps: int) -> int:
    for n in range(steps):
        await wrap(n)
        await perdure.sleep(0.02)
    return steps


async def main(url: str, redis: str, runs: int) -> None:
    bus = RedisStream(redis, stream="events")
    async with Engine(url, buses=[bus]) as engine:
        keys = [f"run-{n}" for n in range(runs)]
        started = await engine.start_many([wrapped(STEPS) for _ in keys], keys=keys)
        await asyncio.gather(*(run.result() for run in started))
        while (await engine.buses.info(bus.name)).behind:  # noqa: ASYNC110 - relays have no such event
            await asyncio.sleep(0.05)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
