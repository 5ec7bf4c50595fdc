"""The steps that a journal records: what each one is, what it was given, and its value or error."""

from collections.abc import Iterable
from datetime import UTC, datetime
from enum import StrEnum

import msgspec

from perdure.core.ids import StepId
from perdure.core.journal import events as e
from perdure.core.journal.entry import Entry


class StepOutcome(StrEnum):
    """What the journal says of a step."""

    OPEN = "open"
    OK = "ok"
    FAILED = "failed"
    SKIPPED = "skipped"


class RecordedStep(msgspec.Struct, kw_only=True):
    """One step. `begun` and `ended` are entries; payloads are as stored. `started_at_ms` is of the last attempt."""

    step: StepId
    what: str
    begun: int
    ended: int | None = None
    begun_at_ms: int = 0
    started_at_ms: int | None = None
    ended_at_ms: int | None = None
    attempts: int = 0
    outcome: StepOutcome = StepOutcome.OPEN
    input: bytes | None = None
    value: bytes | None = None
    text: str = ""
    """A value without a payload, such as a time."""
    is_erased: bool = False


def recorded_steps(entries: Iterable[Entry]) -> dict[StepId, RecordedStep]:
    """All steps of a journal, in the order in which they began."""
    fold = _Fold()
    for entry in entries:
        event = entry.event
        fold.begin(event, entry)
        fold.end(event, entry)
    return fold.steps


class _Fold:
    """The steps so far, and the signals that were delivered."""

    def __init__(self) -> None:
        self.steps: dict[StepId, RecordedStep] = {}
        self._delivered: dict[tuple[str, int], bytes | None] = {}

    def begin(self, event: e.Event, entry: Entry) -> None:
        match event:
            case e.InvokeScheduled(promise_id=step, function_name=name):
                what = f"branch {name}" if event.kind is e.InvokeKind.BRANCH else name
                self._add(step, what, entry).input = event.payload
            case e.InvokeStarted(promise_id=step) if step in self.steps:
                self.steps[step].attempts = event.attempt
                self.steps[step].started_at_ms = entry.at_ms
            case e.TimerScheduled(promise_id=step):
                self._add(step, "timer", entry).text = f"{event.duration_ms / 1000:g} s"
            case e.TimeRecorded(promise_id=step):
                at = datetime.fromtimestamp(event.time_us / 1e6, UTC)
                self._add(step, "now", entry).text = at.isoformat()
            case e.RandomGenerated(promise_id=step):
                self._add(step, "random", entry).text = str(event.value)
            case e.ExecutionAwaiting():
                for signal in event.signals:
                    self._add(signal.promise_id, f"signal {signal.name}", entry)
            case e.SignalDelivered():
                self._delivered[event.signal_name, event.delivery_id] = event.payload
            case _:
                pass  # begins no step

    def end(self, event: e.Event, entry: Entry) -> None:
        match event:
            case e.InvokeCompleted(promise_id=step) if step in self.steps:
                outcome = StepOutcome.OK if event.ok else StepOutcome.FAILED
                _end(self.steps[step], entry, outcome, event.payload)
            case e.TimerFired(promise_id=step) if step in self.steps:
                _end(self.steps[step], entry, StepOutcome.OK, None)
            case e.TimeRecorded(promise_id=step) | e.RandomGenerated(promise_id=step):
                _end(self.steps[step], entry, StepOutcome.OK, None)
            case e.SignalReceived(promise_id=step, signal_name=name, delivery_id=number):
                payload = event.payload or self._delivered.get((name, number))
                _end(self._add(step, f"signal {name}", entry), entry, StepOutcome.OK, payload)
            case e.StepSkipped(promise_id=step):
                found = self.steps.get(step) or self._add(step, "", entry)
                found.text = event.reason
                _end(found, entry, StepOutcome.SKIPPED, event.payload)
            case _:
                pass  # ends no step

    def _add(self, step: StepId, what: str, entry: Entry) -> RecordedStep:
        """The step; one that began before, such as the time limit of a signal, keeps its first entry."""
        found = self.steps.get(step)
        if found is None:
            found = self.steps[step] = RecordedStep(
                step=step, what=what, begun=entry.seq, begun_at_ms=entry.at_ms
            )
        found.what = what
        return found


def _end(step: RecordedStep, entry: Entry, outcome: StepOutcome, value: bytes | None) -> None:
    step.ended, step.outcome, step.value = entry.seq, outcome, value
    step.ended_at_ms = entry.at_ms
    step.is_erased = entry.erased is not None
