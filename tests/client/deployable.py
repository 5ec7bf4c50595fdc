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
        () if any(isinstance(node, m.Trigger) for node in nodes) else (m.Trigger(name="start"),)
    )
    types: dict[str, Any] = {field: FieldType(kind) for field, kind in fields.items()}  # type: ignore[arg-type]
    return Graph(name, (*trigger, *nodes), tuple(pairs), version, types)


def adding(name: str, version: str = "1", by: int = 1) -> Graph:
    """`x` and so much more, when somebody says `go` to its key."""
    return graph(
        name,
        m.Hook(name="go", topic="go", key="k", output={}),
        m.Worker(name="total", task="deployable.add", input={"a": "x", "b": str(by)}),
        m.Output(name="out", value="total"),
        edges="start go total out",
        version=version,
        x="int",
        k="str",
    )


def quick(name: str, version: str = "1", by: int = 1) -> Graph:
    """`x` and so much more."""
    return graph(
        name,
        m.Worker(name="total", task="deployable.add", input={"a": "x", "b": str(by)}),
        m.Output(name="out", value="total"),
        edges="start total out",
        version=version,
        x="int",
    )


def asking(name: str, task: str = "deployable.ask") -> Graph:
    """What `who` is asked for, once there is an answer; what was said before it is `said`."""
    return msgspec.structs.replace(
        graph(
            name,
            m.Worker(
                name="ask", task=task, input={"who": "who"}, output={"got": "result"}, pending=True
            ),
            m.Assign(name="note", set={"said": "got"}, job={"said": "got"}),
            m.Output(name="out", value="got"),
            edges="start ask out",
            who="str",
        ),
        edges=(Edge("start", "ask"), Edge("ask", "note", on="pending"), Edge("ask", "out")),
    )


async def until_waiting(handle: Handle[Any], count: int = 1) -> None:
    """Until so many of its hooks wait, for all to see."""

    async def ask_store() -> bool:
        return len((await handle.waits()).hooks) == count

    await until_store(ask_store)
