"""The latency of a run of one step on an idle engine: `python -m bench.latency URL RUNS` prints figures as JSON.

One run after the other, each from its start to its result. Such a run is two commits.
"""

import asyncio
import json
import statistics
import sys
import time

from bench.chain import checkout
from perdure import Engine

WARM_UP = 50
"""Runs that are not counted: statements are prepared, and the file grows its first pages."""


async def measure(url: str, runs: int) -> dict[str, float]:
    times = []
    async with Engine(url) as engine:
        for _ in range(WARM_UP + runs):
            began = time.perf_counter()
            run = await engine.start(checkout(1))
            await run.result()
            times.append(1000 * (time.perf_counter() - began))
    p50, p99 = (statistics.quantiles(times[WARM_UP:], n=100)[i] for i in (49, 98))
    return {"p50_ms": p50, "p99_ms": p99}


def main() -> None:
    url, runs = sys.argv[1:]
    sys.stdout.write(json.dumps(asyncio.run(measure(url, int(runs)))) + "\n")


if __name__ == "__main__":
    main()
