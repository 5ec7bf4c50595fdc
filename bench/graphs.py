"""Graphs on an engine: `python -m bench.graphs URL chain|spread|cycle NUMBER` prints figures as JSON.

- `chain`: so many runs at once, each a chain of ten workers; with `bench.chain`, the same as a graph and as a workflow.
- `spread`: one run that spreads over so many items, with a worker for each, and aggregates what they return.
- `cycle`: one run that goes round so many times: hook, worker, cycle. What each of its first turns and of its last ones
  cost, a tenth of them each, by the clock and in work of the event loop's thread.
"""

import asyncio
import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

from bench.chain import chains, charge, charge_on_the_clock, moments, per_step_ms
from perdure import Engine, task
from perdure.authoring.graphs.program import GraphProgram
from perdure.core.graph import model as m

STEPS = 10
REPEATS = 5
END_PART = 10

Figures = dict[str, float]

_CHARGED = {"order": "'order-42'", "items": "3"}


@task
async def priced_item(item: int) -> int:
    return 14 * item


def _chained() -> GraphProgram[..., Any]:
    workers = [
        m.WorkerNode(name=f"charge{number}", task=charge.name, input=_CHARGED, output={})
        for number in range(STEPS)
    ]
    names = ["begin", *(worker.name for worker in workers), "end"]
    nodes: tuple[m.AnyNode, ...] = (
        m.TriggerNode(name="begin"),
        *workers,
        m.OutputNode(name="end", value=str(STEPS)),
    )
    edges = tuple(m.Edge(*pair) for pair in pairwise(names))
    return GraphProgram(m.Graph("checkout_graph", nodes, edges))


checkout_graph = _chained()

spread_graph: GraphProgram[..., Any] = GraphProgram(
    m.Graph(
        "spread_graph",
        (
            m.TriggerNode(name="begin"),
            m.SpreadNode(name="each", items="range(items)", item="item"),
            m.WorkerNode(name="price", task=priced_item.name, input={"item": "item"}),
            m.AggregateNode(name="all", of="each", collect="price", into="prices"),
            m.OutputNode(name="end", value="sum(prices)"),
        ),
        (
            m.Edge("begin", "each"),
            m.Edge("each", "price"),
            m.Edge("price", "all"),
            m.Edge("all", "end"),
        ),
        input={"items": m.FieldType("int")},
    )
)

cycle_graph: GraphProgram[..., Any] = GraphProgram(
    m.Graph(
        "cycle_graph",
        (
            m.TriggerNode(name="begin"),
            m.AssignNode(name="first", set={"turn": "0"}),
            m.HookNode(name="again", cycle=True),
            m.BranchNode(name="is_more"),
            m.WorkerNode(
                name="charge",
                task=charge_on_the_clock.name,
                input=_CHARGED,
                output={"turn": "turn + 1"},
            ),
            m.CycleNode(name="back", to="again", input={"turn": "turn"}),
            m.OutputNode(name="end", value="turn"),
        ),
        (
            m.Edge("begin", "first"),
            m.Edge("first", "again"),
            m.Edge("again", "is_more"),
            m.Edge("is_more", "charge", when="turn < turns"),
            m.Edge("is_more", "end"),
            m.Edge("charge", "back"),
        ),
        input={"turns": m.FieldType("int")},
    )
)


async def measure_chain(engine: Engine, runs: int) -> Figures:
    return await chains(engine, runs, STEPS, checkout_graph)


async def run_spread(engine: Engine, items: int) -> float:
    began = time.perf_counter()
    run = await engine.start(spread_graph(items=items))
    total = await run.result()
    spent = time.perf_counter() - began
    assert total == 14 * sum(range(items))
    return spent


async def measure_spread(engine: Engine, items: int) -> Figures:
    """A tenth of the items and all of them, in turns: both on a database that grows."""
    sizes = {"few_ms": items // 10, "many_ms": items}
    await run_spread(engine, items // 10)  # so that what happens once in a process is not counted
    spent: dict[str, list[float]] = {name: [] for name in sizes}
    for _ in range(REPEATS):
        for name, size in sizes.items():
            spent[name].append(1000 * await run_spread(engine, size))
    return {name: statistics.median(times) for name, times in spent.items()}


async def measure_cycle(engine: Engine, turns: int) -> Figures:
    run = await engine.start(cycle_graph(turns=turns))
    assert await run.result() == turns
    ends = turns // END_PART
    first, first_work = per_step_ms(0, ends)
    last, last_work = per_step_ms(turns - ends - 1, turns - 1)
    assert len(moments) == turns
    return {
        "first_ms": first,
        "last_ms": last,
        "first_work_ms": first_work,
        "last_work_ms": last_work,
    }


MEASURES: dict[str, Callable[[Engine, int], Awaitable[Figures]]] = {
    "chain": measure_chain,
    "spread": measure_spread,
    "cycle": measure_cycle,
}


async def measure(url: str, what: str, number: int) -> Figures:
    async with Engine(url) as engine:
        figures = await MEASURES[what](engine, number)
        books = await engine.audit()
    assert books.is_clean, books
    return figures


def main() -> None:
    url, what, number = sys.argv[1:]
    sys.stdout.write(json.dumps(asyncio.run(measure(url, what, int(number)))) + "\n")


if __name__ == "__main__":
    main()
