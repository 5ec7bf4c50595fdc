"""A process of its own that speaks to a chain and may be killed: `python -m tests.client.runs.killed_chain URL COUNT`.

It sends so many words, each under its number, and prints what was heard. Started again it sends them all again.
"""

import asyncio
import sys

import perdure
from perdure import Engine, Signal, task, workflow

number = Signal("killed_chain.number", int)
PER_RUN = 3


@task
async def noted(value: int) -> int:
    return value


@workflow
async def noting(heard: list[int], count: int) -> list[int]:
    for _ in range(PER_RUN):
        heard.append(await noted(await number.receive()))
        if len(heard) == count:
            return sorted(heard)
    return await perdure.continue_as_new(noting(heard, count))


async def main(url: str, count: int) -> None:
    async with Engine(url) as engine:
        run = await engine.start(noting([], count), key="chain")
        for value in range(count):
            try:
                await run.signal(number, value, id=str(value))
            except perdure.RunClosed:
                break  # another life sent them all
        sys.stdout.write(" ".join(map(str, await run.result())))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
