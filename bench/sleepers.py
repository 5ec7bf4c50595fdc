"""Sleeping runs: what they need while they sleep, and how late they wake.

`python -m bench.sleepers URL RUNS` prints figures as JSON. Memory is that of the process (Linux), after a collection,
with the first 1,000 runs asleep and with all of them. Each run then wakes at a time of its own and begins a step; it is
late by what passes until the body of that step begins, which is after the commit.

A run that wakes costs two commits and a replay, at least as much as a run of one step. So the wake times are spread
such that the engine is asked for a third as many wakings per second as it does one-step runs, as measured just before.
"""

import asyncio
import json
import math
import statistics
import sys
import time
from array import array
from contextlib import suppress
from functools import partial

import perdure
from bench.chain import checkout, run_all
from bench.countdown import Countdown
from bench.process import resident_mb
from perdure import Engine, task, workflow

FEW = 1000
CHUNK = 1000
"""Runs that are started at a time."""

SHARE = 1 / 3
"""Of the one-step runs per second that the engine does, how many wake per second."""

RESERVE_S = 5.0
"""Between the last run that falls asleep and the first that wakes, at least; else nothing is measured."""

PATIENCE_S = 120.0
"""How late the last may be; beyond it, it counts as never woken."""

late = array("d")
"""By how many seconds each run was late; NaN while it sleeps. Allocated before memory is measured."""

wakings = Countdown()


@task
async def note(number: int, until: float) -> None:
    if math.isnan(late[number]):
        wakings.tick()
    late[number] = time.time() - until


@workflow
async def sleeper(number: int, until: float) -> None:
    await perdure.sleep(max(0.0, until - perdure.now().timestamp()))
    await note(number, until)


async def one_step_rate(engine: Engine) -> float:
    spent = [(await run_all(engine, 500, partial(checkout, 1)))[0] for _ in range(4)]
    return 500 * 2 / sum(spent[2:])


async def put_to_sleep(engine: Engine, numbers: range, first: float, rate: float) -> None:
    for begin in range(numbers.start, numbers.stop, CHUNK):
        chunk = range(begin, min(begin + CHUNK, numbers.stop))
        await engine.start_many([sleeper(n, first + n / rate) for n in chunk])


async def measure(url: str, runs: int) -> dict[str, float]:
    late.extend([math.nan] * runs)
    wakings.expect(runs)
    few = min(FEW, runs)
    async with Engine(url) as engine:
        one_step = await one_step_rate(engine)
        rate = one_step * SHARE
        # To fall asleep is one commit, a run of one step is two.
        began = time.time()
        first = began + runs / one_step + RESERVE_S
        sys.stderr.write(f"sleepers: the last is due in {first + runs / rate - began:.0f} s\n")
        await put_to_sleep(engine, range(few), first, rate)
        memory_of_few = resident_mb()
        await put_to_sleep(engine, range(few, runs), first, rate)
        memory_of_all = resident_mb()
        asleep = time.time()
        if asleep > first:
            raise SystemExit(f"the first was due {asleep - first:.1f} s before the last slept")
        with suppress(TimeoutError):
            async with asyncio.timeout(first + runs / rate + PATIENCE_S - asleep):
                await wakings.wait()
    woken = sorted(each for each in late if not math.isnan(each))
    return {
        "few_mb": memory_of_few,
        "all_mb": memory_of_all,
        "asleep_per_s": runs / (asleep - began),
        "one_step_per_s": one_step,
        "due_per_s": rate,
        "woken": len(woken),
        "late_p50_ms": 1000 * statistics.median(woken),
        "late_p99_ms": 1000 * woken[len(woken) * 99 // 100],
        "late_worst_ms": 1000 * woken[-1],
    }


def main() -> None:
    url, runs = sys.argv[1:]
    sys.stdout.write(json.dumps(asyncio.run(measure(url, int(runs)))) + "\n")


if __name__ == "__main__":
    main()
