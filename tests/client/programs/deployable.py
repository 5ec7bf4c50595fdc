"""Graphs that the tests deploy, and the tasks that they call. No graph here is registered in the process."""

import asyncio
from itertools import pairwise
from typing import Any

import msgspec

from perdure import Handle, Response, task
from perdure.core.graph import model as m
from perdure.core.graph.model import Edge, FieldType, Graph
from tests.client.engines import until_store


@task(name="deployable.add")
async def add(a: int, b: int) -> int:
    return a + b


@task(name="deployable.fail")
async def fail(reason: str) -> None:
    raise ValueError(reason)


@task(name="deployable.ask")
async def ask(who: str) -> Response:
    return Response(f"asked {who}", 202)


@task(name="deployable.ask_slowly")
async def ask_slowly(who: str) -> Response:
    await asyncio.sleep(0.3)
    return Response(f"asked {who}", 202)


def graph(name: str, *nodes: m.AnyNode, edges: str, version: str = "1", **fields: str) -> Graph:
    """A graph with a trigger `start`; `edges` are chains: "start a b, b c"."""
    pairs = [
        Edge(*pair)
        for chain in edges.split(",")
        for names in [chain.split()]
        for pair in pairwise(names)
    ]
    trigger = (
        ()
        if any(isinstance(node, m.TriggerNode) for node in nodes)
        else (m.TriggerNode(name="start"),)
    )
    types: dict[str, Any] = {field: FieldType(kind) for field, kind in fields.items()}  # type: ignore[arg-type]
    return Graph(name, (*trigger, *nodes), tuple(pairs), version, types)


def adding(name: str, version: str = "1", by: int = 1) -> Graph:
    """`x` plus `by`, after a signal `go` to its key."""
    return graph(
        name,
        m.HookNode(name="go", topic="go", key="k", output={}),
        m.WorkerNode(name="total", task="deployable.add", input={"a": "x", "b": str(by)}),
        m.OutputNode(name="out", value="total"),
        edges="start go total out",
        version=version,
        x="int",
        k="str",
    )


def quick(name: str, version: str = "1", by: int = 1) -> Graph:
    """`x` plus `by`."""
    return graph(
        name,
        m.WorkerNode(name="total", task="deployable.add", input={"a": "x", "b": str(by)}),
        m.OutputNode(name="out", value="total"),
        edges="start total out",
        version=version,
        x="int",
    )


def asking(name: str, task: str = "deployable.ask") -> Graph:
    """Asks `who`, and returns the answer. The pending result of the task is stored as `said`."""
    return msgspec.structs.replace(
        graph(
            name,
            m.WorkerNode(
                name="ask", task=task, input={"who": "who"}, output={"got": "result"}, pending=True
            ),
            m.AssignNode(name="note", set={"said": "got"}, job={"said": "got"}),
            m.OutputNode(name="out", value="got"),
            edges="start ask out",
            who="str",
        ),
        edges=(Edge("start", "ask"), Edge("ask", "note", on="pending"), Edge("ask", "out")),
    )


async def until_waiting(handle: Handle[Any], count: int = 1) -> None:
    """Wait until the store has that many waiting hooks of the run."""

    async def ask_store() -> bool:
        return len((await handle.waits()).hooks) == count

    await until_store(ask_store)
