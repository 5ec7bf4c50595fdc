"""Many runs that are active at once: `python -m bench.active URL RUNS STEPS` prints figures as JSON.

So many runs take so many steps each, with the default number of slots.
Linux only.
"""

import asyncio
import json
import resource
import sys
from functools import partial

from bench.chain import WARM_UP, Figures, checkout, run_all
from bench.process import resident_mb
from perdure import Engine, Settings

BUDGET = 1_000_000_000
"""Bytes for runs in memory: enough for all of them."""

STEPS_IN_ALL = 100_000
"""Fewer runs are started in more waves, up to so many steps."""

MOST_WAVES = 20


def peak_mb() -> float:
    """The most resident memory that this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1_000_000


async def measure(url: str, runs: int, steps: int) -> Figures:
    call = partial(checkout, steps)
    waves = max(1, min(MOST_WAVES, STEPS_IN_ALL // (runs * steps)))
    async with Engine(url, settings=Settings(warm_memory=BUDGET)) as engine:
        await run_all(engine, WARM_UP, call)
        before = resident_mb()
        spent = [await run_all(engine, runs, call) for _ in range(waves)]
        memory = engine.warm_memory()
    clock, work = map(sum, zip(*spent, strict=True))
    done = runs * steps * waves
    return {
        "steps_per_s": done / clock,
        "step_work_ms": 1000 * work / done,
        "grown_mb": peak_mb() - before,
        "warm_share": 1 - memory.replays / done,
    }


def main() -> None:
    url, runs, steps = sys.argv[1:]
    figures = asyncio.run(measure(url, int(runs), int(steps)))
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main()
