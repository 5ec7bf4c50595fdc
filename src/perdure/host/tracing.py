"""What a host reports to a tracing system while runs execute: the spans of attempts and of runs that end."""

from typing import Protocol

from perdure.authoring.context import Info
from perdure.core.runs.tracing import Links
from perdure.host.watchers import RunEnding


class AttemptSpan(Protocol):
    """The span of an attempt that executes."""

    def end(self, error: BaseException | None = None, *, failed: bool = False) -> None:
        """The attempt ended; `failed` unless its outcome is good, and then `error` is what it raised, if known."""
        ...


class Tracing(Protocol):
    """Reports spans. Their ids are those of `perdure.core.runs.tracing`."""

    def context(self) -> str:
        """The current span of the caller, in the form of W3C Trace Context; empty if there is none."""
        ...

    def attempt_begins(self, info: Info, task: str) -> AttemptSpan:
        """An attempt begins in the current context: spans that its task makes belong to the span that this returns."""
        ...

    def run_ended(self, info: Info, created_at_ms: int, links: Links, ending: RunEnding) -> None:
        """A run has ended, durably."""
        ...
