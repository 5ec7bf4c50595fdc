"""A process of its own with a task that kills it, and tasks that are under way then.

`python -m tests.client.tasks.poisoned URL LOG WHERE`: they run "here", or "there", from a queue.
Each attempt that begins leaves a line in the log.
When started again, the process resumes its runs by their keys, until all of them are over; then it
prints how they ended.
"""

import asyncio
import os
import signal
import sys
import time

from perdure import Engine, Settings, StepInDoubt, task, workflow

BYSTANDERS = 6

SETTINGS = Settings(probation=0.6)
HARMLESS_S = 0.2
"""How long the process lives after the killing task began: shorter than a probation."""
LASTS_S = 1.5
"""Longer than a probation, so that a bystander still runs when the next step begins."""


def note(what: str) -> None:
    os.write(log, f"{what}\n".encode())


def die() -> None:
    note("poison")
    time.sleep(HARMLESS_S)
    os.kill(os.getpid(), signal.SIGSEGV)


async def last(number: int) -> int:
    note(f"bystander {number}")
    await asyncio.sleep(LASTS_S)
    return number


def last_in_a_thread(number: int) -> int:
    note(f"bystander {number}")
    time.sleep(LASTS_S)
    return number


poison = {
    "here": task(name="poisoned.poison")(die),
    "there": task(name="poisoned.poison_there", queue="poisoned")(die),
}
lasting = {
    "here": task(name="poisoned.last")(last),
    "there": task(name="poisoned.last_there", queue="poisoned")(last),
}
threaded = {
    "here": task(name="poisoned.threaded")(last_in_a_thread),
    "there": task(name="poisoned.threaded_there", queue="poisoned")(last_in_a_thread),
}


@workflow(name="poisoned.dying")
async def dying(where: str) -> None:
    await poison[where]()


@workflow(name="poisoned.standing_by")
async def standing_by(where: str, number: int) -> int:
    return await (threaded if number % 2 else lasting)[where](number)


async def main(url: str, where: str) -> None:
    async with Engine(url, queues=["poisoned"], settings=SETTINGS) as engine:
        # The killer is neither the first nor the last: runs and steps go by their order in places.
        calls = [standing_by(where, number) for number in range(BYSTANDERS)]
        keys = [str(number) for number in range(BYSTANDERS)]
        half = BYSTANDERS // 2
        others = await engine.start_many(calls[:half], keys=keys[:half])
        run = await engine.start(dying(where), key="poison")
        others += await engine.start_many(calls[half:], keys=keys[half:])
        try:
            await run.result(60)
        except StepInDoubt as doubt:
            sys.stdout.write(f"{doubt.what}\n")
        numbers = [await other.result(60) for other in others]
        sys.stdout.write(f"{numbers}\n")


if __name__ == "__main__":
    log = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    asyncio.run(main(sys.argv[1], sys.argv[3]))
