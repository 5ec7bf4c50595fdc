"""One of several processes with an engine on the same store.

Run as `python -m tests.client.cluster.embedded URL NUMBER`.

It starts runs of its own, and runs that the others start too, by the same keys; then it waits for all of them and
says how they ended.
"""

import asyncio
import sys

import perdure
from perdure import Engine, task, workflow

OWN = 20
SHARED = 10


@task(name="embedded.add")
async def add(number: int) -> int:
    return number + 1


@task(name="embedded.add_there", queue="embedded")
async def add_there(number: int) -> int:
    return number + 1


@workflow(name="embedded.adding")
async def adding(number: int) -> int:
    number = await add(number)
    await perdure.sleep(0.05)
    number = await add_there(number)
    return await add(number)


async def main(url: str, number: int) -> None:
    async with Engine(url, queues=["embedded"]) as engine:
        numbers = [number * 1000 + each for each in range(OWN)]
        own = await engine.start_many([adding(each) for each in numbers])
        shared = await engine.start_many(
            [adding(each) for each in range(SHARED)], keys=map(str, range(SHARED))
        )
        results = [await run.result(60) for run in [*own, *shared]]
    sys.stdout.write(" ".join(map(str, results)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
