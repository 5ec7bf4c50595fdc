"""Graphs for tests: what they are built of, the tasks that they call, and the signals that clients send."""

import asyncio
import itertools
import json
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple

import msgspec

import perdure
from perdure import Handle, ProgramCall, task
from perdure.authoring.graphs.program import GraphProgram
from perdure.authoring.response import Response
from perdure.core.graph import model as m
from perdure.core.graph.identity import mailbox_of
from perdure.core.ids import StepId
from perdure.core.messages import Message
from perdure.core.replay.identity import signal_guid
from perdure.store.commit.bundle import Bundle
from perdure.testing.probe import Probe
from perdure.testing.script import After, ScriptFunction

Edges = Iterable[m.Edge | tuple[str, str]]


class Case(NamedTuple):
    """A graph, what happens to it, and how it must end: with one of some results, if it matters.

    Of a race the order of events may be another one under faults, and so may the end.
    """

    call: Callable[[], ProgramCall[Any]]
    results: tuple[str, ...] | str = ()
    status: str = "completed"
    script: ScriptFunction | After | None = None
    is_race: bool = False


def graph(
    name: str, nodes: Iterable[Any], edges: Edges, *, threshold: int = 0, **fields: str
) -> Any:
    """A registered graph whose input has these fields, by their types."""
    kinds: Any = {field: m.FieldType(kind) for field, kind in fields.items()}  # type: ignore[arg-type]
    made = tuple(edge if isinstance(edge, m.Edge) else m.Edge(*edge) for edge in edges)
    return GraphProgram[..., Any](
        m.Graph(own(name), tuple(nodes), made, input=kinds, threshold=threshold)
    )


def own(name: str) -> str:
    """The registered name of a graph of these cases: other tests have programs, too."""
    return f"explored_{name}"


def chain(*names: str) -> list[tuple[str, str]]:
    """Edges from each node to the next."""
    return list(itertools.pairwise(names))


def add(name: str, a: str, b: str = "1", **fields: Any) -> m.WorkerNode:
    """A worker that adds."""
    return m.WorkerNode(name=name, task="graph_add", input={"a": a, "b": b}, **fields)


START = m.TriggerNode(name="t")


def out(value: str, name: str = "o") -> m.OutputNode:
    return m.OutputNode(name=name, value=value)


# Tasks


@task
async def graph_add(a: int, b: int) -> int:
    return a + b


@task
async def graph_refuse(x: int) -> int:
    raise ValueError(f"no {x}")


@task
async def graph_third_time(n: int) -> int:
    attempt = perdure.info().attempt
    if attempt < 3:
        raise ConnectionError("not yet")
    return n


@task
async def graph_answer(data: Any, code: int) -> Any:
    return Response(data, code)


@task(queue="elsewhere")
async def graph_elsewhere(n: int) -> int:
    return n + 100


@task(queue="nowhere")
async def graph_nowhere(n: int) -> int:
    return n


@task(on_cancel="finish")
async def graph_unstoppable() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


@task(on_cancel="finish", queue="elsewhere")
async def graph_unstoppable_elsewhere() -> None:
    """A run that ends waits for it, wherever it is executed."""


ENDED: list[str] = []
"""Bodies that were ended before their time."""


@task
async def graph_endless() -> None:
    try:
        await asyncio.sleep(3600)
    finally:
        ENDED.append("endless")


@task
async def graph_who() -> str:
    return perdure.info().run_id


# What clients do


def say(*sayings: Callable[[Handle[Any]], Awaitable[None]]) -> ScriptFunction:
    async def script(run: Handle[Any]) -> None:
        for saying in sayings:
            await saying(run)

    return script


def to_run(
    topic: str, value: Any, code: int = 200, step: str | None = None, after_s: int = 0
) -> ScriptFunction:
    """A signal to the run, or to one of its steps; on its way for some time."""

    async def send(run: Handle[Any]) -> None:
        guid = signal_guid(run.run_id, topic, f"{step} {value}")
        at = None if step is None else StepId(step)
        payload = _payload(run, value, code)
        message = Message(run.run_id, guid, f"signal:{topic}", 0, 0, at, payload)
        await _send(run, message, after_s)

    return send


def to_topic(topic: str, key: str, value: Any, code: int = 200, after_s: int = 0) -> ScriptFunction:
    """A signal by topic and key."""

    async def send(run: Handle[Any]) -> None:
        mailbox = mailbox_of(topic, key)
        guid = signal_guid(mailbox, topic, str(value))
        message = Message(mailbox, guid, f"signal:{topic}", 0, 0, None, _payload(run, value, code))
        await _send(run, message, after_s)

    return send


def _payload(run: Handle[Any], value: Any, code: int) -> bytes:
    return Probe.host_of(run).context.codec.encode(value if code == 200 else Response(value, code))


async def _send(run: Handle[Any], message: Message, after_s: int) -> None:
    context = Probe.host_of(run).context
    now = context.sources.now_ms()
    bundle = Bundle()
    due = now + 1000 * after_s
    bundle.enqueue(msgspec.structs.replace(message, due_at_ms=due, arrival=due))
    await context.store.commit(bundle)


def json_of(value: Any) -> str:
    """As a result is stored."""
    return json.dumps(value, separators=(",", ":"))
