"""A process of its own with a task that kills it: `python -m tests.client.tasks.doomed URL LOG WORKFLOW`.

Every body of the task leaves a line in the log before it kills. Beside it go runs that have nothing to do with it.
When started again, the process resumes its runs by their keys, until all are over; then it prints how they ended.
"""

import asyncio
import os
import signal
import sys
import time

import perdure
from perdure import Engine, StepInDoubt, task, workflow

BYSTANDERS = 5
STEPS = 12

PATIENCE_S = 0.4
"""How long it lives after the killing task began: long enough for a bystander's step to end."""


@task(name="doomed.kill")
def kill() -> None:
    os.write(log, f"{perdure.key()}\n".encode())
    time.sleep(PATIENCE_S)
    os.kill(os.getpid(), signal.SIGKILL)


@task(name="doomed.kill_there", queue="doomed")
async def kill_there() -> None:
    os.write(log, f"{perdure.key()}\n".encode())
    await asyncio.sleep(PATIENCE_S)
    os.kill(os.getpid(), signal.SIGKILL)


@task(name="doomed.add")
async def add(number: int) -> int:
    return number + 1


@workflow(name="doomed.catching")
async def catching() -> str:
    await perdure.sleep(0.1)
    try:
        await kill()
    except StepInDoubt as doubt:
        return doubt.what
    return "alive"


@workflow(name="doomed.catching_there")
async def catching_there() -> str:
    await perdure.sleep(0.1)
    try:
        await kill_there()
    except StepInDoubt as doubt:
        return doubt.what
    return "alive"


@workflow(name="doomed.failing")
async def failing() -> str:
    await kill()
    return "alive"


@workflow(name="doomed.standing_by")
async def standing_by(number: int) -> int:
    for _ in range(STEPS):
        number = await add(number)
        await perdure.sleep(0.05)
    return number


async def main(url: str, name: str) -> None:
    made = {each.name: each for each in (catching, catching_there, failing)}[name]
    async with Engine(url, queues=["doomed"]) as engine:
        keys = [str(number) for number in range(BYSTANDERS)]
        others = await engine.start_many([standing_by(n) for n in range(BYSTANDERS)], keys=keys)
        run = await engine.start(made(), key="doomed")
        try:
            ended = await run.result(60)
        except StepInDoubt as doubt:
            ended = f"the run failed: {doubt.what}"
        totals = [await other.result(60) for other in others]
        sys.stdout.write(f"{ended}\n{totals}\n")


if __name__ == "__main__":
    log = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    asyncio.run(main(sys.argv[1], sys.argv[3]))
