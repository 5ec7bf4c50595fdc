"""OpenTelemetry: spans of runs and attempts, with the ids that `perdure runs trace` reads from the journal.

Needs the extra `perdure[otel]`, which is OpenTelemetry's API alone: which SDK and which exporter report the spans is
your program's choice.
"""

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    StatusCode,
    TraceFlags,
    Tracer,
    TracerProvider,
)

from perdure.authoring.context import Info
from perdure.core.journal.state import Status
from perdure.core.runs.tracing import (
    NO_SPAN,
    Links,
    TraceContext,
    attempt_attributes,
    attempt_span,
    child_context,
    run_attributes,
    run_span,
    trace_context,
)
from perdure.host.clock import HostSources
from perdure.host.watchers import RunEnding

if TYPE_CHECKING:
    from collections.abc import Iterator

_NANOS = 1_000_000
_ENDS = {Status.FAILED: "the run failed", Status.CANCELLED: "the run was cancelled"}

_ids: ContextVar[TraceContext | None] = ContextVar("perdure_span_ids", default=None)
"""The ids of the span that is being made."""


class _IdSource(Protocol):
    def generate_span_id(self) -> int: ...
    def generate_trace_id(self) -> int: ...


class DerivedIds:
    """Generates ids for an SDK: those of Perdure's spans follow from the run, all others come from the source."""

    def __init__(self, source: _IdSource) -> None:
        self._source = source

    def generate_span_id(self) -> int:
        ids = _ids.get()
        return self._source.generate_span_id() if ids is None else int(ids.span_id, 16)

    def generate_trace_id(self) -> int:
        ids = _ids.get()
        return self._source.generate_trace_id() if ids is None else int(ids.trace_id, 16)

    def is_trace_id_random(self) -> bool:
        """Whether all trace ids are random; ids of runs are not."""
        return False


class OpenTelemetry:
    """Reports spans: `Engine(url, tracing=OpenTelemetry())`. Without a provider it uses the global one.

    A run that starts under a span belongs to the trace of that span; other runs begin traces of their own.
    """

    def __init__(self, provider: TracerProvider | None = None) -> None:
        self._provider = provider
        self._known: Tracer | None = None

    def context(self) -> str:
        current = trace.get_current_span().get_span_context()
        if not current.is_valid:
            return ""
        flags = f"{int(current.trace_flags):02x}"
        trace_id, span_id = f"{current.trace_id:032x}", f"{current.span_id:016x}"
        return TraceContext(trace_id, span_id, flags).text()

    def attempt_begins(self, info: Info, task: str) -> "OpenAttemptSpan":
        parent = child_context(info.run_id, info.trace)
        attributes = attempt_attributes(info.run_id, info.step, info.attempt)
        own = parent._replace(span_id=attempt_span(info.run_id, info.step, info.attempt))
        with _making(own):
            span = self._tracer.start_span(
                task, _as_parent(parent), SpanKind.INTERNAL, dict(attributes)
            )
        # The attempt runs in a context of its own, which ends with it.
        otel_context.attach(trace.set_span_in_context(span))
        return OpenAttemptSpan(span)

    def run_ended(self, info: Info, created_at_ms: int, links: Links, ending: RunEnding) -> None:
        parent = trace_context(info.run_id, info.trace)
        with _making(parent._replace(span_id=run_span(info.run_id))):
            span = self._tracer.start_span(
                info.program,
                _as_parent(parent),
                SpanKind.INTERNAL,
                dict(run_attributes(info.run_id, info.program)),
                [Link(_span_context(TraceContext(*link))) for link in links],
                created_at_ms * _NANOS,
            )
        if (problem := _ENDS.get(ending.status)) is not None:
            span.set_status(StatusCode.ERROR, problem)
        span.end(HostSources().now_ms() * _NANOS)

    @property
    def _tracer(self) -> Tracer:
        """The tracer of the SDK. Until the program has set up an SDK, the API's, which reports nothing."""
        if self._known is not None:
            return self._known
        tracer = (self._provider or trace.get_tracer_provider()).get_tracer("perdure")
        source = getattr(tracer, "id_generator", None)
        if source is not None:
            # This tracer is ours alone: others of the provider keep their ids.
            tracer.id_generator = DerivedIds(source)  # type: ignore[attr-defined]
            self._known = tracer
        return tracer


class OpenAttemptSpan:
    """The span of an attempt under way."""

    def __init__(self, span: Span) -> None:
        self._span = span

    def end(self, error: BaseException | None = None, *, failed: bool = False) -> None:
        """End the span; a second call does nothing."""
        if not self._span.is_recording():
            return
        if error is not None:
            self._span.record_exception(error)
        if failed:
            self._span.set_status(StatusCode.ERROR, "the attempt failed")
        self._span.end()


def _as_parent(context: TraceContext) -> Any:
    """The context of OpenTelemetry in which a span gets this trace and this parent."""
    if context.span_id == NO_SPAN:
        return otel_context.Context()
    parent = NonRecordingSpan(_span_context(context))
    return trace.set_span_in_context(parent, otel_context.Context())


def _span_context(context: TraceContext) -> SpanContext:
    ids = int(context.trace_id, 16), int(context.span_id, 16)
    return SpanContext(*ids, is_remote=True, trace_flags=TraceFlags(int(context.flags, 16)))


@contextmanager
def _making(ids: TraceContext) -> "Iterator[None]":
    token = _ids.set(ids)
    try:
        yield
    finally:
        _ids.reset(token)
