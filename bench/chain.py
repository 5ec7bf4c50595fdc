"""Workflows on an engine: `python -m bench.chain URL chain|single|long` prints its figures as JSON.

- `chain`: 500 runs at once, 10 steps each: steps per second, and how many commits a warm step takes.
- `single`: runs of one step, 500 at a time: runs per second.
- `long`: one run of 5,000 steps: what each of its first 500 and of its last 500 cost, by the clock and in work of
  the event loop's thread. The clock also counts the disk, whose mood may change on the way.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Sequence

from perdure import Engine, task, workflow
from perdure.store.bundle import Bundle
from perdure.store.postgres.store import PostgresStore
from perdure.store.sqlite.store import SqliteStore
from perdure.store.writer import Outcomes

RUNS = 500
STEPS = 10
WAVES = 2
LONG_STEPS = 5000
END_STEPS = 500

Figures = dict[str, float]

moments: list[tuple[float, float]] = []
"""When each body began, by the clock and by the thread's own time."""


@task
async def charge(order: str, items: int) -> dict[str, object]:
    moments.append((time.perf_counter(), time.thread_time()))
    return {"total": 14 * items, "order": order}


@workflow
async def checkout(steps: int) -> int:
    for _ in range(steps):
        await charge("order-42", 3)
    return steps


class Counter:
    """Bundles, and the groups that they went in."""

    def __init__(self, engine: Engine) -> None:
        self.bundles = 0
        self.groups = 0
        store = engine._store
        assert isinstance(store, SqliteStore | PostgresStore)
        self._write = store._committer._write
        store._committer._write = self._count

    def _count(self, bundles: Sequence[Bundle]) -> Awaitable[Outcomes]:
        self.groups += 1
        self.bundles += len(bundles)
        return self._write(bundles)


async def run_all(engine: Engine, runs: int, steps: int) -> float:
    """The seconds that so many runs take, from their start to the last result."""
    began = time.perf_counter()
    started = await engine.start_many([checkout(steps) for _ in range(runs)])
    await asyncio.gather(*(run.result() for run in started))
    return time.perf_counter() - began


async def measure_chain(engine: Engine) -> Figures:
    counter = Counter(engine)
    spent = await run_all(engine, RUNS, STEPS)
    # Beginning is a commit of its own; the end goes with the last step.
    return {
        "steps_per_s": RUNS * STEPS / spent,
        "bundles_per_step": (counter.bundles - RUNS) / (RUNS * STEPS),
        "bundles_per_group": counter.bundles / counter.groups,
    }


async def measure_single(engine: Engine) -> Figures:
    spent = [await run_all(engine, RUNS, 1) for _ in range(WAVES)]
    return {"runs_per_s": RUNS * WAVES / sum(spent)}


def per_step_ms(begin: int, end: int) -> tuple[float, float]:
    """What a step between two places of the run cost: by the clock, and in work."""
    (clock, work), (clock_then, work_then) = moments[begin], moments[end]
    each_ms = 1000 / (end - begin)
    return each_ms * (clock_then - clock), each_ms * (work_then - work)


async def measure_long(engine: Engine) -> Figures:
    await run_all(engine, 1, LONG_STEPS)
    first, first_work = per_step_ms(0, END_STEPS)
    last, last_work = per_step_ms(LONG_STEPS - END_STEPS - 1, LONG_STEPS - 1)
    return {
        "first_ms": first,
        "last_ms": last,
        "first_work_ms": first_work,
        "last_work_ms": last_work,
    }


MEASURES: dict[str, Callable[[Engine], Awaitable[Figures]]] = {
    "chain": measure_chain,
    "single": measure_single,
    "long": measure_long,
}


async def measure(url: str, what: str) -> Figures:
    async with Engine(url) as engine:
        return await MEASURES[what](engine)


def main() -> None:
    url, what = sys.argv[1], sys.argv[2]
    sys.stdout.write(json.dumps(asyncio.run(measure(url, what))) + "\n")


if __name__ == "__main__":
    main()
