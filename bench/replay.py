"""The replay of one long journal: `python -m bench.replay URL` prints figures as JSON.

Reads the run that `bench.chain URL long` left behind, in a process that has done nothing yet, and does by hand what a
host does to bring a run back: read row and entries, rebuild the journal, which decodes the events, and feed the facts
among them to the program.
"""

import asyncio
import json
import sys
import time
from itertools import pairwise

from bench.chain import LONG_KEY, long_checkout
from perdure.authoring.context import Info
from perdure.core.codec import JsonCodec
from perdure.core.ids import StepId
from perdure.core.journal.events import InvokeCompleted
from perdure.engine.runs.warm import rebuild_run
from perdure.engine.workflow.machine import WorkflowMachine
from perdure.host.clock import HostSources
from perdure.store.opening import open_store
from perdure.store.store import Store


async def measure_on(store: Store) -> dict[str, float]:
    long_run = await store.run_by_key("", long_checkout.name, LONG_KEY)
    assert long_run is not None, "measure `long` on this store first"
    clock = [time.perf_counter()]
    [(run, entries)] = await store.load([long_run.run_id])
    clock.append(time.perf_counter())
    _, events = rebuild_run(run, entries)
    clock.append(time.perf_counter())
    info = Info(run.run_id, run.program, run.version, run.key, StepId("root"))
    machine = WorkflowMachine(long_checkout, info, JsonCodec(), HostSources(), events)
    machine.replay()
    clock.append(time.perf_counter())
    assert machine.is_over
    read, rebuild, replay = (end - begin for begin, end in pairwise(clock))
    steps = sum(isinstance(event, InvokeCompleted) for event in events)
    return {
        "steps": steps,
        "read_s": read,
        "rebuild_s": rebuild,
        "replay_s": replay,
    }


async def measure(url: str) -> dict[str, float]:
    store = await open_store(url)
    try:
        return await measure_on(store)
    finally:
        await store.close()


def main() -> None:
    sys.stdout.write(json.dumps(asyncio.run(measure(sys.argv[1]))) + "\n")


if __name__ == "__main__":
    main()
