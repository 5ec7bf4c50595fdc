"""What a warm run needs: `python -m bench.memory URL RUNS STEPS` prints figures as JSON.

So many runs take so many steps each and then sleep, all of them in memory. What the process grows by, over what it
had with the first few of them, is shared out among the runs. Linux only.
"""

import asyncio
import json
import sys

import perdure
from bench.countdown import Countdown
from bench.process import resident_mb, tracked_objects
from perdure import Engine, Settings, task, workflow

FEW = 200
"""Runs that are there before: they bring what every process needs once."""

HOUR_S = 3600.0
SETTLE_S = 1.0
"""Longer than the last commit takes, in which a run falls asleep."""

strides = Countdown()


@task
async def stride(order: str, items: int) -> dict[str, object]:
    strides.tick()
    return {"total": 14 * items, "order": order}


@workflow
async def stroll(steps: int) -> None:
    for _ in range(steps):
        await stride("order-42", 3)
    await perdure.sleep(HOUR_S)


async def put_to_sleep(engine: Engine, runs: int, steps: int) -> None:
    strides.expect(runs * steps)
    await engine.start_many([stroll(steps) for _ in range(runs)])
    if steps:
        await strides.wait()
    await asyncio.sleep(SETTLE_S)


async def measure(url: str, runs: int, steps: int) -> dict[str, float]:
    settings = Settings(warm_memory=1_000_000_000)
    async with Engine(url, settings=settings) as engine:
        await put_to_sleep(engine, FEW, steps)
        memory, objects = resident_mb(), tracked_objects()
        await put_to_sleep(engine, runs, steps)
        return {
            "kb_per_run": 1000 * (resident_mb() - memory) / runs,
            "objects_per_run": (tracked_objects() - objects) / runs,
        }


def main() -> None:
    url, runs, steps = sys.argv[1:]
    figures = asyncio.run(measure(url, int(runs), int(steps)))
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main()
