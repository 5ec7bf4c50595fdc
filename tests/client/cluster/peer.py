"""A host process: `python -m tests.client.cluster.peer NAME URL LOG [MACHINE]`. It reads commands from its input:

`start FIRST COUNT` starts runs by their numbers and says `started`; `await FIRST COUNT` says how they ended. When its
input ends it closes. Every body leaves a line of `LINE` bytes in the log as it begins: the host's name, its run, its
step and its attempt. With a MACHINE it claims to be a host there, so that its peers can't check whether it lives.
"""

import asyncio
import logging
import os
import sys

import perdure
from perdure import Engine, Settings, Signal, task, workflow
from perdure.host.cluster import identity

STEPS = 6
LINE = len("a 00000 00 00\n")
STEP_S = 0.05

SETTINGS = Settings(heartbeat=0.1, stale_after=1.5, transaction_timeout=0.5, grace=5, lease=30)


called = Signal("peer.called", int)


def leave_line(run: int, step: int) -> None:
    os.write(log, b"%s %05d %02d %02d\n" % (name.encode(), run, step, perdure.info().attempt))


@task(name="peer.walk")
async def walk(run: int, step: int) -> int:
    leave_line(run, step)
    await asyncio.sleep(STEP_S)
    return run + step


@task(name="peer.carry", queue="peers")
async def carry(run: int, step: int) -> int:
    leave_line(run, step)
    await asyncio.sleep(STEP_S)
    return run + step


@workflow(name="peer.travel")
async def travel(run: int) -> int:
    total = 0
    for step in range(STEPS):
        total += await (carry if step % 3 == 2 else walk)(run, step)
    return total


@workflow(name="peer.meet")
async def meet(run: int) -> int:
    """Travels when it is called."""
    number = await called.receive()
    total = 0
    for step in range(STEPS):
        total += await (carry if step % 3 == 2 else walk)(number, step)
    return total if number == run else -1


def total_of(run: int) -> int:
    return sum(run + step for step in range(STEPS))


async def obey(engine: Engine, command: str, numbers: range) -> str:
    keys = [str(number) for number in numbers]
    runs = await engine.start_many([travel(number) for number in numbers], keys=keys)
    if command == "start":
        return "started"
    totals = await asyncio.gather(*(run.result() for run in runs))
    return "ended well" if totals == [total_of(number) for number in numbers] else f"{totals}"


async def main(url: str) -> None:
    async with Engine(url, settings=SETTINGS, queues=["peers"]) as engine:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while line := await asyncio.to_thread(sys.stdin.readline):
            command, first, count = line.split()
            answer = await obey(engine, command, range(int(first), int(first) + int(count)))
            sys.stdout.write(f"{answer}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    name = sys.argv[1]
    log = os.open(sys.argv[3], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    logging.basicConfig(filename=f"{sys.argv[3]}.{name}", level=logging.INFO)
    if len(sys.argv) > 4:
        here = identity._here()._replace(machine=sys.argv[4])
        identity._here = lambda: here
    asyncio.run(main(sys.argv[2]))
