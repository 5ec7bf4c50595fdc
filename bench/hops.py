"""Hops between two processes, one by one: `python -m bench.hops URL WHAT HOPS SECONDS` prints figures as JSON.

This process and a worker process are engines on one store, with default settings. Nothing else happens meanwhile. WHAT:

- `local`: this process starts a run of one step, executes it and waits for its result. The worker only looks on.
- `queued`: this process owns a run of one step; the worker serves the queue of that step.
- `signal`: the worker owns a run that waits for a signal and then does one step; this process sends the signal and
  waits for the result.
- `started`: this process has no host: it starts a run of one step, which the worker takes, and waits for the result.

A child run can't be measured across processes: the host that owns a parent starts its children, in the commit that
schedules them, so it must have their programs. `started` is the run that begins in another process.

At most HOPS hops count, and no more begin after SECONDS.
"""

import asyncio
import json
import statistics
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial

from bench.worker import approval, approve, checkout_elsewhere, checkout_here, key_of, worker
from perdure import Engine, Handle

WARM_UP = 20
"""Hops that go before those that count, at most."""

FEWEST = 2
"""Hops that are done in any case, however long they take."""

Hop = Callable[[], Awaitable[None]]


async def hop_local(engine: Engine) -> None:
    run = await engine.start(checkout_here())
    assert await run.result() == 1


async def hop_queued(engine: Engine) -> None:
    run = await engine.start(checkout_elsewhere(1))
    assert await run.result() == 1


async def hop_signal(run: Handle[int]) -> None:
    await run.signal(approval, 3)
    assert await run.result() == 3


async def hops_of(what: str, engine: Engine, number: int) -> list[Hop]:
    """So many hops, ready to go."""
    if what == "signal":
        found = [await engine.find(approve, key_of(n)) for n in range(number)]
        return [partial(hop_signal, run) for run in found if run is not None]
    return [partial(hop_queued if what == "queued" else hop_local, engine)] * number


async def measure(url: str, what: str, hops: int, seconds: float) -> dict[str, float]:
    all_hops = WARM_UP + hops
    waiting = all_hops if what == "signal" else 0
    async with Engine(url, hosts=what != "started") as engine, worker(url, waiting):
        left = deque(await hops_of(what, engine, all_hops))
        assert len(left) == all_hops
        await times_of(left, WARM_UP, seconds / 5)
        times = await times_of(left, hops, seconds)
    p50, p99 = (statistics.quantiles(times, n=100, method="inclusive")[i] for i in (49, 98))
    return {"p50_ms": p50, "p99_ms": p99, "hops": len(times)}


async def times_of(left: deque[Hop], most: int, seconds: float) -> list[float]:
    """What each hop took, in milliseconds. None begins after so many seconds, but for the fewest."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < most:
        began = time.perf_counter()
        if began > end and len(times) >= FEWEST:
            break
        await left.popleft()()
        times.append(1000 * (time.perf_counter() - began))
    return times


def main() -> None:
    url, what, hops, seconds = sys.argv[1:]
    figures = asyncio.run(measure(url, what, int(hops), float(seconds)))
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main()
