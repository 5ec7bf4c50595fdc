"""Queued steps on DBOS: `python bench/dbos_queued.py URL RUNS STEPS [HOW THREADS POLL]` prints figures as JSON.

Runs in an environment of its own and imports nothing of ours. This process decides: each step of its workflows is a
workflow that it puts on a queue, whose result it waits for. Another process, which this one starts, listens to the
queue and executes the steps. HOW: all workflows are plain functions, in `threads`; or `coroutines`; or `mixed`: those
that decide are coroutines, and steps plain functions. THREADS is the size of each process's pool of threads. POLL is
how many seconds pass between two looks of the worker in the queue, and of a waiting workflow at its step; DBOS' default
for both is a second.

Without HOW it takes what was found to be the fastest on each store (docs/performance.md; `python -m bench rivals` tries
the others). The file of SQLite is in WAL mode.
"""

import asyncio
import gc
import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial

from dbos import DBOS

WARM_UP = 5
"""Runs of one step that are not counted."""

FASTEST = {"sqlite": ("coroutines", "16", "0.1"), "postgresql": ("coroutines", "16", "0.1")}

CONNECTIONS = 20
QUEUE = "charges"
READY = "ready\n"
END_TIMEOUT_S = 60

LOOP = asyncio.Runner()
"""One for all coroutines: it shares its threads with DBOS, and would end them with itself."""

poll_s = 1.0


@DBOS.workflow()
def charge(order: str, items: int) -> dict[str, object]:
    return {"total": 14 * items, "order": order}


@DBOS.workflow()
def checkout(steps: int) -> int:
    for _ in range(steps):
        step = DBOS.enqueue_workflow(QUEUE, charge, "order-42", 3)
        step.get_result(polling_interval_sec=poll_s)
    return steps


@DBOS.workflow()
async def charge_later(order: str, items: int) -> dict[str, object]:
    return {"total": 14 * items, "order": order}


@DBOS.workflow()
async def checkout_later(steps: int, coroutines: bool) -> int:
    for _ in range(steps):
        charged = charge_later if coroutines else charge
        step = await DBOS.enqueue_workflow_async(QUEUE, charged, "order-42", 3)
        await step.get_result(polling_interval_sec=poll_s)
    return steps


def run_in_threads(runs: int, steps: int) -> list[int]:
    handles = [DBOS.start_workflow(checkout, steps) for _ in range(runs)]
    return [handle.get_result(polling_interval_sec=poll_s) for handle in handles]


def run_as_coroutines(runs: int, steps: int, *, coroutines: bool) -> list[int]:
    async def run_all() -> list[int]:
        calls = [checkout_later(steps, coroutines) for _ in range(runs)]
        return list(await asyncio.gather(*calls))

    return LOOP.run(run_all())


HOW: dict[str, Callable[[int, int], list[int]]] = {
    "threads": run_in_threads,
    "coroutines": partial(run_as_coroutines, coroutines=True),
    "mixed": partial(run_as_coroutines, coroutines=False),
}


def launch(url: str, who: str, threads: int, queues: list[str]) -> None:
    DBOS(
        config={
            "name": "bench",
            "system_database_url": url,
            "executor_id": who,
            "max_executor_threads": threads,
            "sys_db_pool_size": CONNECTIONS,
            "log_level": "ERROR",
        }
    )
    DBOS.listen_queues(queues)
    DBOS.launch()


def measure(how: str, runs: int, steps: int) -> dict[str, float]:
    HOW[how](WARM_UP, 1)
    began = time.perf_counter()
    results = HOW[how](runs, steps)
    spent = time.perf_counter() - began
    assert results == [steps] * runs
    return {"steps_per_s": runs * steps / spent}


def serve(url: str, threads: int) -> None:
    launch(url, "worker", threads, [QUEUE])
    try:
        sys.stdout.write(READY)
        sys.stdout.flush()
        sys.stdin.read()
    finally:
        DBOS.destroy()


def decide(url: str, how: str, threads: int, runs: int, steps: int) -> dict[str, float]:
    launch(url, "decider", threads, [])
    try:
        DBOS.register_queue(QUEUE, polling_interval_sec=poll_s)
        # -I, as this process: nothing of ours is on the path.
        command = [sys.executable, "-I", __file__, url, "serve", str(threads)]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as worker:
            assert worker.stdin is not None
            assert worker.stdout is not None
            try:
                assert worker.stdout.readline() == READY, "the worker ended by itself"
                figures = measure(how, runs, steps)
                worker.stdin.close()
                worker.wait(END_TIMEOUT_S)
            finally:
                worker.kill()
    finally:
        DBOS.destroy()
    return figures


def main() -> None:
    global poll_s  # noqa: PLW0603 - a workflow's arguments would be stored with each run
    gc.set_threshold(50_000, 2, 2)  # as DBOS has it elsewhere in these benchmarks
    url, *rest = sys.argv[1:]
    store = url.partition(":")[0]
    if rest[0] == "serve":
        serve(url, int(rest[1]))
        return
    runs, steps, *mode = rest
    how, threads, poll = mode or FASTEST[store]
    poll_s = float(poll)
    if store == "sqlite":
        file = sqlite3.connect(url.removeprefix("sqlite:///"))
        file.execute("PRAGMA journal_mode = WAL")  # stays with the file
        file.close()
    sys.stdout.write(json.dumps(decide(url, how, int(threads), int(runs), int(steps))) + "\n")


if __name__ == "__main__":
    main()
