"""Traces: one span for each run and each attempt, with ids that follow from the run. Pure.

So the spans that hosts report while a run executes, and those that are read from its journal later, have the same ids,
and a trace survives every crash. A run that began under a span of its caller belongs to that span's trace; any other
run has a trace of its own, whose id is that of the run. Child runs, and the next runs of a chain, share the trace.
"""

import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any, Final, NamedTuple

import msgspec

from perdure.core.errors import InputError
from perdure.core.ids import RunId, StepId
from perdure.core.journal import events as e
from perdure.core.journal.entry import Entry
from perdure.core.replay.identity import parse_parent

NO_SPAN: Final = "0" * 16

_CONTEXT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_ERROR: Final = 2
"""The status of a span that failed, in OTLP."""
_SCOPE: Final = "perdure"


class TraceContext(NamedTuple):
    """A trace, and the span that a new one belongs to: `NO_SPAN` for the first of a trace."""

    trace_id: str
    span_id: str = NO_SPAN
    flags: str = "01"

    @property
    def parent(self) -> str | None:
        """The id of the parent span, if there is one."""
        return None if self.span_id == NO_SPAN else self.span_id

    def text(self) -> str:
        """The context in the form of W3C Trace Context; zeros in place of a parent that does not exist."""
        return f"00-{self.trace_id}-{self.span_id}-{self.flags}"


def parse_context(text: str) -> TraceContext:
    """The context of a text in the form of W3C Trace Context."""
    if not _CONTEXT.fullmatch(text):
        raise InputError(
            f"{text!r:.100} is no trace context",
            "pass the text of a W3C traceparent header: 00-TRACE-SPAN-FLAGS",
        )
    return TraceContext(*text.split("-")[1:])


def trace_context(run_id: RunId, recorded: str | None) -> TraceContext:
    """The trace of a run, and the parent of its span; `recorded` is what its first entry says."""
    return parse_context(recorded) if recorded else TraceContext(run_id.rpartition("_")[2])


def child_context(run_id: RunId, recorded: str | None) -> TraceContext:
    """The context of what a run starts: child runs and attempts."""
    return trace_context(run_id, recorded)._replace(span_id=run_span(run_id))


def run_span(run_id: RunId) -> str:
    """The id of a run's span."""
    return _span_id(run_id)


def attempt_span(run_id: RunId, step: StepId, attempt: int) -> str:
    """The id of the span of one attempt of a step."""
    return _span_id(f"{run_id}|{step}|{attempt}")


def _span_id(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]


Links = tuple[tuple[str, str], ...]
"""Spans of other runs: their trace and span ids."""


class TraceSpan(msgspec.Struct, frozen=True, kw_only=True):
    """A span of a run or of an attempt. `ended_ms` is `None` while it is open; `links` name the runs it comes from."""

    trace_id: str
    span_id: str
    parent: str | None
    name: str
    started_ms: int
    ended_ms: int | None = None
    error: str | None = None
    """What it failed with; `None` unless it failed."""
    attributes: Mapping[str, str | int] = {}
    links: Links = ()


def spans_of(run_id: RunId, created_at_ms: int, entries: Iterable[Entry]) -> list[TraceSpan]:
    """The spans that a whole journal records: that of the run first, then those of attempts, in order.

    Without attempts from before the run was created: a fork has copied their entries.
    """
    fold = _Fold(run_id, created_at_ms)
    for entry in entries:
        fold.take(entry)
    return fold.spans()


class _Fold:
    """The spans so far."""

    def __init__(self, run_id: RunId, created_at_ms: int) -> None:
        self._run_id = run_id
        self._created_at_ms = created_at_ms
        self._context = TraceContext("")
        self._run: dict[str, Any] = {}
        self._attempts: dict[tuple[StepId, int], dict[str, Any]] = {}
        self._scheduled: dict[StepId, tuple[str, int, bool]] = {}
        """Name of each task's step, since when its next attempt may begin, and whether it is on a queue. Child runs
        have spans of their own, and branches none."""

    def take(self, entry: Entry) -> None:
        match event := entry.event:
            case e.ExecutionStarted():
                self._begin_run(event)
            case e.InvokeScheduled(promise_id=step) if _is_task(event):
                queued = event.place is e.InvokePlace.QUEUE
                self._scheduled[step] = event.function_name, entry.at_ms, queued
            case e.InvokeStarted(promise_id=step) if step in self._scheduled:
                self._begin_attempt(event, entry.at_ms)
            case e.InvokeRetrying(promise_id=step, failed_attempt=attempt) if (
                step in self._scheduled
            ):
                self._end_attempt(step, attempt, entry.at_ms, "the attempt failed")
                name, _, queued = self._scheduled[step]
                self._scheduled[step] = name, max(entry.at_ms, event.retry_at_ms), queued
            case e.InvokeCompleted(promise_id=step, attempt=attempt):
                error = None if event.ok else "the step failed"
                self._end_attempt(step, attempt, entry.at_ms, error)
            case e.Terminal():
                self._end_run(event, entry.at_ms)
            case _:
                pass  # neither begins nor ends a span

    def spans(self) -> list[TraceSpan]:
        """All spans; what the journal does not end is open, or was cut off by the next attempt."""
        if not self._run:
            return []
        return [TraceSpan(**self._run), *(TraceSpan(**span) for span in self._attempts.values())]

    def _begin_run(self, event: e.ExecutionStarted) -> None:
        self._context = trace_context(self._run_id, event.trace)
        self._run = {
            **self._ids(run_span(self._run_id), self._context.parent),
            "name": event.program,
            "started_ms": self._created_at_ms,
            "attributes": run_attributes(self._run_id, event.program),
            "links": links_of(event),
        }

    def _end_run(self, event: e.Terminal, at_ms: int) -> None:
        ends = {e.ExecutionFailed: "the run failed", e.ExecutionCancelled: "the run was cancelled"}
        self._run |= {"ended_ms": at_ms, "error": ends.get(type(event))}
        for (step, attempt), span in self._attempts.items():
            if span.get("ended_ms") is None:
                self._end_attempt(step, attempt, at_ms, "the run ended")

    def _begin_attempt(self, event: e.InvokeStarted, at_ms: int) -> None:
        step, attempt = event.promise_id, event.attempt
        name, since_ms, queued = self._scheduled[step]
        self._end_attempt(step, attempt - 1, at_ms, "the host ended before the attempt did")
        if at_ms < self._created_at_ms:
            return
        self._attempts[step, attempt] = {
            **self._ids(attempt_span(self._run_id, step, attempt), run_span(self._run_id)),
            "name": name,
            # The journal learns of a queued attempt with its outcome: its span begins on the queue.
            "started_ms": min(at_ms, since_ms) if queued else at_ms,
            "attributes": attempt_attributes(self._run_id, step, attempt),
        }

    def _end_attempt(self, step: StepId, attempt: int, at_ms: int, error: str | None) -> None:
        span = self._attempts.get((step, attempt))
        if span is not None and span.get("ended_ms") is None:
            span |= {"ended_ms": at_ms, "error": error}

    def _ids(self, span_id: str, parent: str | None) -> dict[str, Any]:
        return {"trace_id": self._context.trace_id, "span_id": span_id, "parent": parent}


def _is_task(event: e.InvokeScheduled) -> bool:
    return event.place is not e.InvokePlace.RUN and event.kind is not e.InvokeKind.BRANCH


def run_attributes(run_id: RunId, program: str) -> dict[str, str | int]:
    """The attributes of a run's span."""
    return {"perdure.run": run_id, "perdure.program": program}


def attempt_attributes(run_id: RunId, step: StepId, attempt: int) -> dict[str, str | int]:
    """The attributes of an attempt's span."""
    return {"perdure.run": run_id, "perdure.step": step, "perdure.attempt": attempt}


def links_of(first: e.ExecutionStarted) -> Links:
    """The runs that a run comes from, by its first entry: parent, the run before it in its chain, the forked run.

    In the trace of the run if it shares that, as traced runs do, and else each in its own.
    """
    parent = None if first.parent_id is None else parse_parent(first.parent_id)[0]
    forked = None if first.forks is None else RunId(first.forks.partition("@")[0])
    others = [other for other in (parent, first.continues, forked) if other is not None]
    return tuple((trace_context(run, first.trace).trace_id, run_span(run)) for run in others)


def otlp(spans: Iterable[TraceSpan], version: str) -> dict[str, Any]:
    """Spans in the JSON form of OTLP, as `/v1/traces` of a collector takes them. Open ones are left out."""
    ended = [_otlp_span(span) for span in spans if span.ended_ms is not None]
    scope = {"name": _SCOPE, "version": version}
    resource = {"attributes": _otlp_attributes({"service.name": _SCOPE})}
    return {
        "resourceSpans": [
            {"resource": resource, "scopeSpans": [{"scope": scope, "spans": ended}]},
        ]
    }


def _otlp_span(span: TraceSpan) -> dict[str, Any]:
    found = {
        "traceId": span.trace_id,
        "spanId": span.span_id,
        "name": span.name,
        "kind": 1,
        "startTimeUnixNano": str(span.started_ms * 1_000_000),
        "endTimeUnixNano": str((span.ended_ms or span.started_ms) * 1_000_000),
        "attributes": _otlp_attributes(span.attributes),
        "links": [{"traceId": trace, "spanId": other} for trace, other in span.links],
        "status": {} if span.error is None else {"code": _ERROR, "message": span.error},
    }
    return found if span.parent is None else {**found, "parentSpanId": span.parent}


def _otlp_attributes(attributes: Mapping[str, str | int]) -> list[dict[str, Any]]:
    return [
        {
            "key": key,
            "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value},
        }
        for key, value in attributes.items()
    ]
