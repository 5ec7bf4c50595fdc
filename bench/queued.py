"""Queued tasks at speed: `python -m bench.queued URL chain|fanout NUMBER [STEPS]` prints figures as JSON.

This process decides: it owns the runs and serves no queue. A worker process executes the tasks of the queue.

- `chain`: NUMBER runs at once, of STEPS queued steps each: steps per second.
- `fanout`: one run that gathers NUMBER queued tasks: milliseconds.
"""

import asyncio
import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial

from bench.chain import WARM_UP, run_all
from bench.worker import checkout_elsewhere, price_all_elsewhere, worker
from perdure import Engine

REPEATS = 3
LONG_ENOUGH_S = 5.0
"""No wave and no repetition begins after it."""


async def measure_chain(engine: Engine, runs: int, steps: int) -> dict[str, float]:
    await run_all(engine, WARM_UP, partial(checkout_elsewhere, 1))
    spent: list[float] = []
    while len(spent) < REPEATS and sum(spent) < LONG_ENOUGH_S:
        spent.append((await run_all(engine, runs, partial(checkout_elsewhere, steps)))[0])
    return {"steps_per_s": len(spent) * runs * steps / sum(spent)}


async def measure_fanout(engine: Engine, tasks: int) -> dict[str, float]:
    await fan_out(engine, WARM_UP)
    spent: list[float] = []
    while len(spent) < REPEATS and sum(spent) < LONG_ENOUGH_S:
        spent.append(await fan_out(engine, tasks))
    return {"ms": 1000 * statistics.median(spent)}


async def fan_out(engine: Engine, tasks: int) -> float:
    began = time.perf_counter()
    run = await engine.start(price_all_elsewhere(tasks))
    total = await run.result()
    spent = time.perf_counter() - began
    assert total == 14 * sum(range(tasks))
    return spent


MEASURES: dict[str, Callable[..., Awaitable[dict[str, float]]]] = {
    "chain": measure_chain,
    "fanout": measure_fanout,
}


async def measure(url: str, what: str, *sizes: int) -> dict[str, float]:
    async with Engine(url) as engine, worker(url):
        return await MEASURES[what](engine, *sizes)


def main() -> None:
    url, what, *sizes = sys.argv[1:]
    sys.stdout.write(json.dumps(asyncio.run(measure(url, what, *map(int, sizes)))) + "\n")


if __name__ == "__main__":
    main()
