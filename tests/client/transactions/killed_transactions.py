"""A process whose steps write rows, and that may be killed.

Run as `python -m tests.client.transactions.killed_transactions`.

Its arguments are a URL and a log. Each body appends a byte to the log when it has written its row, so that who watches
knows how far it is. The last step of each run starts another run, in the same transaction. Started again the process
resumes its runs by their keys.
"""

import asyncio
import os
import sys

import perdure
from perdure import Engine, Settings, Transaction, task, workflow

RUNS = 40
STEPS = 8
SETTINGS = Settings(max_doubts=50, probation=0)
"""More kills than a step survives that kills its own process; these steps are not suspected of that."""

MAKE = "CREATE TABLE IF NOT EXISTS effects (run integer, step integer, attempt integer)"
INSERT = "INSERT INTO effects VALUES ($1, $2, $3)"


@task(transactional=True)
async def leave_mark(tx: Transaction, run: int, step: int) -> int:
    await tx.execute(INSERT, run, step, perdure.info().attempt)
    os.write(log, b".")
    await asyncio.sleep(0.003)  # time for the test to kill it here
    if step == STEPS - 1:
        await engine.start(thanking(run))
    return step


@workflow
async def thanking(run: int) -> str:
    return f"thanks, {run}"


@workflow
async def leaving_marks(run: int) -> int:
    total = 0
    for step in range(STEPS):
        total += await leave_mark(run, step)
    return total


async def main() -> None:
    async with engine:
        async with engine.transaction() as tx:
            await tx.execute(MAKE)
        runs = [str(number) for number in range(RUNS)]
        started = await engine.start_many([leaving_marks(int(run)) for run in runs], keys=runs)
        for handle in started:
            assert await handle.result() == sum(range(STEPS))


if __name__ == "__main__":
    # Known before it is open: then it takes up what was left behind, and those bodies use it.
    engine = Engine(sys.argv[1], settings=SETTINGS)
    log = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    asyncio.run(main())
