"""Recovery of runs after a kill -9: `python -m bench.recovery URL RUNS` prints figures as JSON.

A child starts the runs. When each is in the middle of its second step the child is killed, and this process, which
has done nothing yet, opens an engine. Counted from there: the engine serves (a run that starts now has its result); the
first of those steps begins again, the last one begins, and the last run takes its step after that, by when every run is
taken up and every result is durable.
"""

import asyncio
import json
import subprocess
import sys
import time

from bench.countdown import Countdown
from perdure import Engine, Settings, task, workflow

READY = "ready\n"

is_victim = False


class Beginnings(Countdown):
    """When each attempt of one task began."""

    def __init__(self) -> None:
        super().__init__()
        self.moments: list[float] = []

    def add(self) -> None:
        self.moments.append(time.perf_counter())
        self.tick()


deliveries = Beginnings()
bills = Beginnings()


@task
async def reserve(number: int) -> int:
    return number


@task
async def deliver(number: int) -> int:
    deliveries.add()
    if is_victim:
        await asyncio.Event().wait()
    return number


@task
async def bill(number: int) -> int:
    bills.add()
    return number


@workflow
async def order(number: int) -> int:
    await reserve(number)
    await deliver(number)
    return await bill(number)


@workflow
async def be_served(number: int) -> int:
    return await reserve(number)


def engine_for(url: str, runs: int) -> Engine:
    """All runs are in flight at once, in memory, each with a body."""
    return Engine(url, settings=Settings(concurrency=runs))


async def be_killed(url: str, runs: int) -> None:
    global is_victim  # noqa: PLW0603 - what the same tasks do in this process
    is_victim = True
    deliveries.expect(runs)
    async with engine_for(url, runs) as engine:
        await engine.start_many([order(n) for n in range(runs)])
        await deliveries.wait()
        sys.stdout.write(READY)
        sys.stdout.flush()
        await asyncio.Event().wait()


def kill_one(url: str, runs: int) -> None:
    command = [sys.executable, "-m", "bench.recovery", url, str(runs), "victim"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as victim:
        assert victim.stdout is not None
        said = victim.stdout.readline()
        victim.kill()
    if said != READY:
        raise SystemExit(f"the victim ended by itself, with status {victim.returncode}")


async def measure(url: str, runs: int) -> dict[str, float]:
    bills.expect(runs)
    began = time.perf_counter()
    async with engine_for(url, runs) as engine:
        await (await engine.start(be_served(0))).result()
        served = time.perf_counter()
        await bills.wait()
    resumed, continued = deliveries.moments, bills.moments
    assert len(resumed) == len(continued) == runs, "each step that was in doubt is begun once more"
    return {
        "served_s": served - began,
        "first_s": resumed[0] - began,
        "last_s": resumed[-1] - began,
        "over_s": continued[-1] - began,
    }


def main() -> None:
    url, runs = sys.argv[1], int(sys.argv[2])
    if sys.argv[3:] == ["victim"]:
        asyncio.run(be_killed(url, runs))
        return
    kill_one(url, runs)
    sys.stdout.write(json.dumps(asyncio.run(measure(url, runs))) + "\n")


if __name__ == "__main__":
    main()
