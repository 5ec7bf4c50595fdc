"""The same workflows on DBOS: `python bench/dbos_chain.py URL chain|latency RUNS STEPS [HOW THREADS CONNECTIONS]`.

Runs in an environment of its own and imports nothing of ours. Prints figures as JSON:

- `chain`: all runs are handed over at once: as HOW says, in the `background` (`DBOS.start_workflow`, plain functions),
  as `coroutines` in one event loop, or through a `queue`;
- `latency`: one run after the other, each a plain call of its workflow.

Without the last three arguments it uses the settings that were the fastest on each store (docs/performance.md;
`python -m bench dbos` tries all of them again). With few threads only so many runs advance at a time, and the others
wait for one at no cost. The file of SQLite is in WAL mode; all else is as DBOS has it.
"""

import asyncio
import gc
import json
import sqlite3
import statistics
import sys
import time

from dbos import DBOS

WARM_UP = 20
"""Runs that are not counted."""

FASTEST = {"sqlite": ("background", "2", "1"), "postgresql": ("background", "8", "20")}
"""How; with how many threads; and with how many connections to the database."""

QUEUE = "orders"

LOOP = asyncio.Runner()
"""One for all coroutines: it shares its threads with DBOS, and would end them with itself."""


@DBOS.step()
def charge(order: str, items: int) -> dict[str, object]:
    return {"total": 14 * items, "order": order}


@DBOS.workflow()
def checkout(steps: int) -> int:
    for _ in range(steps):
        charge("order-42", 3)
    return steps


@DBOS.step()
async def charge_later(order: str, items: int) -> dict[str, object]:
    return {"total": 14 * items, "order": order}


@DBOS.workflow()
async def checkout_later(steps: int) -> int:
    for _ in range(steps):
        await charge_later("order-42", 3)
    return steps


def run_in_background(runs: int, steps: int) -> list[int]:
    handles = [DBOS.start_workflow(checkout, steps) for _ in range(runs)]
    return [handle.get_result() for handle in handles]


def run_through_queue(runs: int, steps: int) -> list[int]:
    handles = [DBOS.enqueue_workflow(QUEUE, checkout, steps) for _ in range(runs)]
    return [handle.get_result() for handle in handles]


def run_as_coroutines(runs: int, steps: int) -> list[int]:
    async def run_all() -> list[int]:
        return list(await asyncio.gather(*(checkout_later(steps) for _ in range(runs))))

    return LOOP.run(run_all())


HOW = {
    "background": run_in_background,
    "coroutines": run_as_coroutines,
    "queue": run_through_queue,
}


def measure_chain(how: str, runs: int, steps: int) -> dict[str, float]:
    if how == "queue":
        DBOS.register_queue(QUEUE)
    HOW[how](WARM_UP, 1)
    began = time.perf_counter()
    results = HOW[how](runs, steps)
    spent = time.perf_counter() - began
    assert results == [steps] * runs
    return {"steps_per_s": runs * steps / spent, "runs_per_s": runs / spent}


def measure_latency(how: str, runs: int, steps: int) -> dict[str, float]:
    assert how == "background", "only plain functions are measured one by one"
    times = []
    for _ in range(WARM_UP + runs):
        began = time.perf_counter()
        checkout(steps)
        times.append(1000 * (time.perf_counter() - began))
    return {"p50_ms": statistics.median(times[WARM_UP:])}


MEASURES = {"chain": measure_chain, "latency": measure_latency}


def main() -> None:
    gc.set_threshold(50_000, 2, 2)  # as ours
    url, what, runs, steps, *mode = sys.argv[1:]
    store = url.partition(":")[0]
    how, threads, connections = mode or FASTEST[store]
    if store == "sqlite":
        file = sqlite3.connect(url.removeprefix("sqlite:///"))
        file.execute("PRAGMA journal_mode = WAL")  # stays with the file
        file.close()
    DBOS(
        config={
            "name": "bench",
            "system_database_url": url,
            "max_executor_threads": int(threads),
            "sys_db_pool_size": int(connections),
            "log_level": "ERROR",
        }
    )
    DBOS.launch()
    try:
        figures = MEASURES[what](how, int(runs), int(steps))
    finally:
        DBOS.destroy()
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main()
