"""One run that gathers many tasks and sums them up: `python -m bench.fanout URL TASKS [asyncio]` prints JSON.

With `asyncio` it uses `asyncio.gather`, else `perdure.gather`.

It is compared with a floor that writes as many rows in as many commits. What those are is not assumed: the store is
asked afterwards how many entries and accounts it has, and the commits are counted while the runs advance. Thus the
floor pays for each row once, although ours writes each account twice: when its step is scheduled, and when it ends.
"""

import asyncio
import json
import statistics
import sys
import time

import perdure
from bench.counter import Counter
from perdure import Engine, task, workflow

REPEATS = 5


@task
async def price(item: int) -> int:
    return 14 * item


@workflow
async def price_all(items: int) -> int:
    prices = await perdure.gather(*(price(item) for item in range(items)))
    return sum(prices)


@workflow
async def price_all_by_asyncio(items: int) -> int:
    prices = await asyncio.gather(*(price(item) for item in range(items)))
    return sum(prices)


GATHERING = {"perdure": price_all, "asyncio": price_all_by_asyncio}


async def fan_out(engine: Engine, tasks: int, gather: str) -> float:
    began = time.perf_counter()
    run = await engine.start(GATHERING[gather](tasks))
    total = await run.result()
    spent = time.perf_counter() - began
    assert total == 14 * sum(range(tasks))
    return spent


async def measure(url: str, tasks: int, gather: str) -> dict[str, float]:
    async with Engine(url) as engine:
        await fan_out(
            engine, tasks, gather
        )  # so that what happens once in a process is not counted
        counter = Counter(engine)
        spent = [await fan_out(engine, tasks, gather) for _ in range(REPEATS)]
        books = await engine.audit()
    assert books.is_clean, books
    return {
        "ms": 1000 * statistics.median(spent),
        "entries": books.entries / books.runs,
        "accounts": books.accounts / books.runs,
        "commits": counter.groups / REPEATS,
    }


def main() -> None:
    url, tasks, *gather = sys.argv[1:]
    figures = asyncio.run(measure(url, int(tasks), *(gather or ["perdure"])))
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main()
