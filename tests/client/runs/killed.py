"""A process of its own that runs chains and may be killed: `python -m tests.client.runs.killed URL LOG RUNS`.

Every body leaves a line of `LINE` bytes in the log as it runs: run, step and attempt. A run that is over leaves one
of step `STEPS`. When started again, the process resumes its runs by their keys.
"""

import asyncio
import os
import sys

import perdure
from perdure import Engine, Handle, Settings, task, workflow

STEPS = 10
LINE = len("00000 00 00\n")


@task
async def tally(run: int, step: int, total: int) -> int:
    os.write(log, b"%05d %02d %02d\n" % (run, step, perdure.info().attempt))
    return total + run + step


@workflow
async def tallying(run: int) -> int:
    total = 0
    for step in range(STEPS):
        total = await tally(run, step, total)
    return total


def total_of(run: int) -> int:
    return sum(run + step for step in range(STEPS))


async def see_to_its_end(number: int, run: Handle[int]) -> None:
    assert await run.result() == total_of(number)
    os.write(log, b"%05d %02d 00\n" % (number, STEPS))


async def main(url: str, runs: int) -> None:
    # The steps don't kill the process: they continue, and run at the next kill.
    async with Engine(url, settings=Settings(probation=0)) as engine:
        keys = [str(run) for run in range(runs)]
        started = await engine.start_many([tallying(run) for run in range(runs)], keys=keys)
        await asyncio.gather(*(see_to_its_end(*each) for each in enumerate(started)))


if __name__ == "__main__":
    log = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    asyncio.run(main(sys.argv[1], int(sys.argv[3])))
