"""Spans that OpenTelemetry's SDK collects while runs execute, and those that the journal gives afterwards."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import perdure
from perdure import (
    Engine,
    GraphProgram,
    Retry,
    TraceSpan,
    continue_as_new,
    load_graph,
    task,
    workflow,
)
from perdure.core.runs.tracing import otlp
from perdure.integrations.otel import OpenTelemetry
from perdure.testing.probe import Probe
from tests.client.engines import assert_sound, until_store


@task(name="traced.charge")
async def charge(order: int) -> str:
    with trace.get_tracer("shop").start_as_current_span("call the bank"):
        return f"receipt {order}"


@task(name="traced.print", queue="traced-print")
def label(order: int) -> str:
    """Sync: it runs in a thread."""
    assert trace.get_current_span().get_span_context().is_valid
    return f"label {order}"


@task(name="traced.flaky", retry=Retry(attempts=2, first=0))
async def flaky() -> None:
    raise ConnectionError("the bank does not answer")


@workflow(name="traced.child")
async def ship(order: int) -> str:
    return await label(order)


@workflow(name="traced.checkout")
async def checkout(order: int) -> str:
    await charge(order)
    return await ship(order)


@workflow(name="traced.failing")
async def failing() -> None:
    await flaky()


@workflow(name="traced.twice")
async def twice(left: int) -> str:
    receipt = await charge(left)
    if left:
        await continue_as_new(twice(left - 1))
    return receipt


HANGS = asyncio.Event()


@task(name="traced.hangs")
async def hangs() -> str:
    if not HANGS.is_set():
        HANGS.set()
        await asyncio.Event().wait()
    return "done"


@workflow(name="traced.hangs_once")
async def hangs_once() -> str:
    return await hangs()


async def branch(order: int) -> str:
    return await charge(order)


@workflow(name="traced.branches")
async def branches() -> tuple[str, str]:
    return await perdure.gather(branch(1), branch(2))


GRAPH = load_graph("""
graph: traced-graph
input: {number: int}
activities:
  charge: {worker: traced.charge, input: {order: number}, output: {receipt: result}}
  done: {output: receipt}
transitions:
  - charge -> done
""")


class Collected:
    """The spans that an SDK has collected."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span


@pytest.fixture
def collected(monkeypatch: pytest.MonkeyPatch) -> Collected:
    found = Collected()
    monkeypatch.setattr(trace, "get_tracer", found.provider.get_tracer)
    return found


@pytest.fixture
async def engine(shared_url: str, collected: Collected) -> AsyncIterator[Engine]:
    tracing = OpenTelemetry(collected.provider)
    async with Engine(shared_url, queues=["traced-print"], tracing=tracing) as engine:
        yield engine
        await assert_sound(engine)


def ids(span: ReadableSpan) -> tuple[str, str, str | None]:
    context = span.get_span_context()
    assert context is not None
    parent = None if span.parent is None else f"{span.parent.span_id:016x}"
    return f"{context.trace_id:032x}", f"{context.span_id:016x}", parent


def ids_of(span: TraceSpan) -> tuple[str, str, str | None]:
    return span.trace_id, span.span_id, span.parent


async def test_the_journal_gives_the_spans_that_hosts_reported(
    engine: Engine, collected: Collected
) -> None:
    run = await engine.start(checkout(7))
    await run.result(60)
    (child,) = [each async for each in engine.iterate_runs(parent=run.run_id)]
    recorded = await run.trace() + await engine.handle(child.run_id).trace()
    assert [span.name for span in recorded] == [
        *("traced.checkout", "traced.charge", "traced.child", "traced.print")
    ]
    for span in recorded:
        assert ids_of(span) == ids(collected.one(span.name)), span.name
        assert span.error is None
    names = {span.name.rpartition(".")[2]: ids_of(span) for span in recorded}
    assert names["checkout"][2] is None
    assert names["charge"][2] == names["child"][2] == names["checkout"][1]
    assert names["print"][2] == names["child"][1]
    assert len({trace_id for trace_id, _, _ in names.values()}) == 1
    assert ids(collected.one("call the bank"))[2] == names["charge"][1]
    assert [link[1] for link in recorded[2].links] == [names["checkout"][1]]


async def test_a_run_belongs_to_the_trace_of_its_caller(
    engine: Engine, collected: Collected
) -> None:
    with collected.provider.get_tracer("web").start_as_current_span("POST /orders") as request:
        run = await engine.start(checkout(8))
    await run.result(60)
    caller = request.get_span_context()
    (spans, *_) = await run.trace()
    assert ids_of(spans)[::2] == (f"{caller.trace_id:032x}", f"{caller.span_id:016x}")
    assert ids(collected.one("traced.checkout")) == ids_of(spans)


@pytest.mark.parametrize("call", [branches, GraphProgram(GRAPH)], ids=["branches", "graph"])
async def test_every_span_of_a_run_is_the_same_live_and_recorded(
    engine: Engine, collected: Collected, call: Any
) -> None:
    run = await engine.start(call(number=5) if isinstance(call, GraphProgram) else call())
    await run.result(60)
    ours = [
        span for span in collected.exporter.get_finished_spans() if span.name != "call the bank"
    ]
    assert {ids(span) for span in ours} == {ids_of(span) for span in await run.trace()}
    assert len(ours) == (2 if isinstance(call, GraphProgram) else 3)


async def test_a_run_that_waits_for_approval_stays_in_the_trace_of_its_caller(
    engine: Engine, collected: Collected
) -> None:
    with collected.provider.get_tracer("web").start_as_current_span("POST /orders") as request:
        run = await engine.start(checkout(8), approval=True, tags={"customer": "acme"})
    assert await run.trace() == []
    await run.approve()
    await run.result(60)
    spans = await run.trace()
    assert spans[0].parent == f"{request.get_span_context().span_id:016x}"
    assert ids(collected.one("traced.checkout")) == ids_of(spans[0])


async def test_failed_attempts_and_runs_have_failed_spans(
    engine: Engine, collected: Collected
) -> None:
    run = await engine.start(failing())
    with pytest.raises(ConnectionError):
        await run.result(60)
    whole, first, second = await run.trace()
    assert [span.error for span in (whole, first, second)] == [
        *("the run failed", "the attempt failed", "the step failed")
    ]
    live = collected.named("traced.flaky")
    assert [ids(span) for span in live] == [ids_of(first), ids_of(second)]
    assert all(not span.status.is_ok for span in (*live, collected.one("traced.failing")))
    assert [event.name for span in live for event in span.events] == ["exception", "exception"]


async def test_a_chain_is_one_trace_whose_runs_are_linked(
    engine: Engine, collected: Collected
) -> None:
    run = await engine.start(twice(1))
    await run.result(60)
    first, _, second, _ = await run.trace()
    assert first.trace_id == second.trace_id
    assert second.links == ((first.trace_id, first.span_id),)
    assert {ids(span) for span in collected.named("traced.twice")} == {
        ids_of(first),
        ids_of(second),
    }


async def test_a_replay_reports_no_span(shared_url: str, collected: Collected) -> None:
    tracing = OpenTelemetry(collected.provider)
    async with Engine(shared_url, tracing=tracing) as engine:
        run = await engine.start(checkout(9))

        async def is_queued() -> bool:
            children = [each async for each in engine.iterate_runs(parent=run.run_id)]
            return any([(await engine.handle(child.run_id).waits()).tasks for child in children])

        await until_store(is_queued)
    before = len(collected.exporter.get_finished_spans())
    async with Engine(shared_url, queues=["traced-print"], tracing=tracing) as engine:
        await engine.handle(run.run_id).result(60)
        await assert_sound(engine)
    after = [span.name for span in collected.exporter.get_finished_spans()[before:]]
    assert sorted(after) == ["traced.checkout", "traced.child", "traced.print"]


async def test_an_attempt_whose_host_died_is_in_the_trace(
    shared_url: str, collected: Collected
) -> None:
    stuck = Engine(shared_url, tracing=OpenTelemetry(collected.provider))
    await stuck.open()
    run = await stuck.start(hangs_once())
    await HANGS.wait()
    await Probe(stuck).abort()
    async with Engine(shared_url) as engine:
        await engine.handle(run.run_id).result(60)
        whole, lost, again = await engine.handle(run.run_id).trace()
        await assert_sound(engine)
    assert (whole.error, again.error) == (None, None)
    assert lost.error == "the host ended before the attempt did"
    assert lost.ended_ms is not None


def test_otlp_leaves_open_spans_out() -> None:
    open_span = TraceSpan(
        trace_id="1" * 32, span_id="2" * 16, parent=None, name="run", started_ms=5
    )
    ended = TraceSpan(
        trace_id="1" * 32,
        span_id="3" * 16,
        parent="2" * 16,
        name="step",
        started_ms=5,
        ended_ms=7,
        error="the step failed",
        attributes={"perdure.attempt": 1, "perdure.step": "root.0"},
    )
    found: Any = otlp([open_span, ended], "0.1.0")
    (resource,) = found["resourceSpans"]
    (scope,) = resource["scopeSpans"]
    assert scope["spans"] == [
        {
            "traceId": "1" * 32,
            "spanId": "3" * 16,
            "parentSpanId": "2" * 16,
            "name": "step",
            "kind": 1,
            "startTimeUnixNano": "5000000",
            "endTimeUnixNano": "7000000",
            "attributes": [
                {"key": "perdure.attempt", "value": {"intValue": "1"}},
                {"key": "perdure.step", "value": {"stringValue": "root.0"}},
            ],
            "links": [],
            "status": {"code": 2, "message": "the step failed"},
        }
    ]
