"""Workflows on an engine: `python -m bench.chain URL MEASURE RUNS STEPS` prints figures as JSON. Measures:

- `chain`: so many runs at once, of so many steps each: steps per second, and how many commits a warm step takes.
- `ends` and `events`: the same with a subscriber to the ends of runs, or to all events.
- `traced`: the same with spans of OpenTelemetry's SDK, which nothing exports.
- `single`: waves of runs of one step: runs per second.
- `long`: one run: what each of its first 500 and of its last 500 steps cost, by the clock and in work of the event
  loop's thread. The clock also counts the disk, whose mood may change on the way.
"""

import asyncio
import json
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from opentelemetry.sdk.trace import TracerProvider

from bench.counter import Counter
from perdure import Engine, Subscriber, task, workflow
from perdure.authoring.program import ProgramCall
from perdure.integrations.otel import OpenTelemetry

WARM_UP = 20
"""Runs that go before those that count, of DBOS too."""

WAVES = 3
"""How often the runs are started: throughput is that of a process that has been at it for a while."""

END_STEPS = 500
LONG_KEY = "long"
"""Start key of the long run, by which its journal is found again."""

Figures = dict[str, float]

moments: list[tuple[float, float]] = []
"""When each body began, by the clock and by the thread's own time."""


@task
async def charge(order: str, items: int) -> dict[str, object]:
    return {"total": 14 * items, "order": order}


@workflow
async def checkout(steps: int) -> int:
    for _ in range(steps):
        await charge("order-42", 3)
    return steps


@task
async def charge_on_the_clock(order: str, items: int) -> dict[str, object]:
    moments.append((time.perf_counter(), time.thread_time()))
    return {"total": 14 * items, "order": order}


@workflow
async def long_checkout(steps: int) -> int:
    for _ in range(steps):
        await charge_on_the_clock("order-42", 3)
    return steps


async def run_all(
    engine: Engine, runs: int, call: Callable[[], ProgramCall[Any]]
) -> tuple[float, float]:
    """What so many runs take, from their start to the last result: seconds, and seconds of this process's work."""
    began = time.perf_counter(), time.process_time()
    started = await engine.start_many([call() for _ in range(runs)])
    await asyncio.gather(*(run.result() for run in started))
    return time.perf_counter() - began[0], time.process_time() - began[1]


async def chains(
    engine: Engine, runs: int, steps: int, call: Callable[[], ProgramCall[Any]]
) -> Figures:
    """Figures of runs of so many steps each."""
    await run_all(engine, WARM_UP, call)
    counter = Counter(engine)
    waves = [await run_all(engine, runs, call) for _ in range(WAVES)]
    spent, work = map(sum, zip(*waves, strict=True))
    runs *= WAVES
    # Beginning is a commit of its own; the end goes with the last step.
    return {
        "steps_per_s": runs * steps / spent,
        "step_work_ms": 1000 * work / (runs * steps),
        "bundles_per_step": (counter.bundles - runs) / (runs * steps),
        "bundles_per_group": counter.bundles / counter.groups,
    }


async def measure_chain(engine: Engine, runs: int, steps: int) -> Figures:
    return await chains(engine, runs, steps, partial(checkout, steps))


async def measure_single(engine: Engine, runs: int, steps: int) -> Figures:
    call = partial(checkout, steps)
    await run_all(engine, WARM_UP, call)
    spent = [(await run_all(engine, runs, call))[0] for _ in range(WAVES)]
    return {"runs_per_s": runs * WAVES / sum(spent)}


def per_step_ms(begin: int, end: int) -> tuple[float, float]:
    """What a step between two places of the run cost: by the clock, and in work."""
    (clock, work), (clock_then, work_then) = moments[begin], moments[end]
    each_ms = 1000 / (end - begin)
    return each_ms * (clock_then - clock), each_ms * (work_then - work)


async def measure_long(engine: Engine, _: int, steps: int) -> Figures:
    run = await engine.start(long_checkout(steps), key=LONG_KEY)
    await run.result()
    ends = min(END_STEPS, steps // 2)
    first, first_work = per_step_ms(0, ends)
    last, last_work = per_step_ms(steps - ends - 1, steps - 1)
    return {
        "first_ms": first,
        "last_ms": last,
        "first_work_ms": first_work,
        "last_work_ms": last_work,
    }


MEASURES: dict[str, Callable[[Engine, int, int], Awaitable[Figures]]] = {
    "chain": measure_chain,
    "ends": measure_chain,
    "events": measure_chain,
    "traced": measure_chain,
    "single": measure_single,
    "long": measure_long,
}


BUSES = {"ends": ["RunCompleted", "RunFailed", "RunCancelled"], "events": []}
"""The types of events that a subscriber gets; all if none is named."""

published: deque[object] = deque(maxlen=1)


async def measure(url: str, what: str, runs: int, steps: int) -> Figures:
    types = BUSES.get(what)
    buses = (
        [Subscriber(published.append, name="bench", types=types or None)] if what in BUSES else []
    )
    tracing = OpenTelemetry(TracerProvider()) if what == "traced" else None
    async with Engine(url, buses=buses, tracing=tracing) as engine:
        return await MEASURES[what](engine, runs, steps)


def main() -> None:
    url, what, runs, steps = sys.argv[1:]
    figures = asyncio.run(measure(url, what, int(runs), int(steps)))
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main()
