"""Event names and idempotency keys of the run contract, computed from the journal's entries.

Sequence numbers are the same. Events that the contract has no name for keep their own.
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from hashlib import sha256
from typing import Final, NamedTuple

from perdure.core.ids import RunId
from perdure.core.journal import events as e
from perdure.core.journal.invariants import Recorded

RUN_STEP: Final = "RUN"
"""The step in the keys of run-level events."""


class EventType(StrEnum):
    """The type of a contract event: the names of the run contract, then the names that only the journal has."""

    RUN_APPROVED = "RunApproved"
    RUN_STARTED = "RunStarted"
    STEP_STARTED = "StepStarted"
    STEP_COMPLETED = "StepCompleted"
    STEP_FAILED = "StepFailed"
    STEP_SKIPPED = "StepSkipped"
    SIGNAL_ACCEPTED = "SignalAccepted"
    SIGNAL_REJECTED = "SignalRejected"
    RUN_PAUSED = "RunPaused"
    RUN_RESUMED = "RunResumed"
    RUN_COMPLETED = "RunCompleted"
    RUN_FAILED = "RunFailed"
    RUN_CANCELLED = "RunCancelled"

    RUN_CONTINUED = "RunContinued"
    CANCEL_REQUESTED = "CancelRequested"
    INVOKE_SCHEDULED = "InvokeScheduled"
    INVOKE_COMPLETED = "InvokeCompleted"
    INVOKE_RETRYING = "InvokeRetrying"
    RANDOM_GENERATED = "RandomGenerated"
    TIME_RECORDED = "TimeRecorded"
    TIMER_SCHEDULED = "TimerScheduled"
    TIMER_FIRED = "TimerFired"
    SIGNAL_DELIVERED = "SignalDelivered"
    SIGNAL_RECEIVED = "SignalReceived"
    EXECUTION_AWAITING = "ExecutionAwaiting"
    EXECUTION_RESUMED = "ExecutionResumed"
    JOIN_SET_CREATED = "JoinSetCreated"
    JOIN_SET_SUBMITTED = "JoinSetSubmitted"
    JOIN_SET_AWAITED = "JoinSetAwaited"
    POSTED = "Posted"


_RENAMED: Final[dict[type[e.Event], EventType]] = {
    e.ExecutionStarted: EventType.RUN_STARTED,
    e.ExecutionCompleted: EventType.RUN_COMPLETED,
    e.ExecutionFailed: EventType.RUN_FAILED,
    e.ExecutionCancelled: EventType.RUN_CANCELLED,
    e.InvokeStarted: EventType.STEP_STARTED,
    e.InvokeCompleted: EventType.STEP_COMPLETED,
}

_TYPES: Final = {event: _RENAMED.get(event) or EventType(event.__name__) for event in e.EVENTS}

TERMINAL_OF_STEP: Final = frozenset(
    (EventType.STEP_COMPLETED, EventType.STEP_FAILED, EventType.STEP_SKIPPED)
)
"""Events that end a step: each occurs at most once under a logical attempt."""

ENDS_OF_RUN: Final = frozenset(
    (
        EventType.RUN_COMPLETED,
        EventType.RUN_FAILED,
        EventType.RUN_CANCELLED,
        EventType.RUN_CONTINUED,
    )
)
"""The last event of a run."""

_BEFORE_TERMINAL: Final = (
    EventType.INVOKE_SCHEDULED,
    EventType.STEP_STARTED,
    EventType.INVOKE_RETRYING,
)


def contract_name(event: e.Event) -> EventType:
    """The event's name in the run contract."""
    if isinstance(event, e.InvokeCompleted) and not event.ok:
        return EventType.STEP_FAILED
    if isinstance(event, e.InvokeRetrying) and event.parks:
        return EventType.STEP_FAILED
    return _TYPES[type(event)]


def step_of(event: e.Event) -> str:
    """The step that an event belongs to, or `RUN`."""
    return getattr(event, "promise_id", None) or getattr(event, "join_set_id", None) or RUN_STEP


class Label(NamedTuple):
    """How the contract names an entry. `number` counts the events of this type under one logical attempt of the
    step."""

    type: EventType
    step: str
    logical_attempt: int
    number: int

    def key(self, run_id: RunId, plan_version: str) -> str:
        """The idempotency key. A type that recurs adds its number; terminal step events never do."""
        kind = self.type.value if self.number == 1 else f"{self.type}#{self.number}"
        return idempotency_key(run_id, self.step, self.logical_attempt, kind, plan_version)


class Labelling:
    """Labels the entries of one run, which must be given in order from the first.

    A parked step has failed under its logical attempt: what settles it later without a retry, such as the cancel of
    its run, is not a second `StepFailed` and keeps the name that the journal has for it.
    """

    def __init__(self) -> None:
        self._counts: dict[tuple[str, EventType], int] = {}
        """Of each step and type under the current logical attempt. Those of a settled step are dropped."""
        self._logical_attempts: dict[str, int] = {}
        self._parked: set[str] = set()
        """Steps that have failed under their current logical attempt and are not settled."""

    def copied(self) -> "Labelling":
        """A labelling that continues where this one is."""
        other = Labelling()
        other._counts = self._counts.copy()
        other._logical_attempts = self._logical_attempts.copy()
        other._parked = self._parked.copy()
        return other

    def logical_attempt(self, step: str) -> int:
        """The current logical attempt of a step."""
        return self._logical_attempts.get(step, 1)

    def label(self, event: e.Event) -> Label:
        """The label of the next entry."""
        step, name = step_of(event), contract_name(event)
        if name is EventType.STEP_FAILED and step in self._parked:
            name = _TYPES_WHEN_FAILED[type(event)]
        logical_attempt, number = self.logical_attempt(step), 1
        if name in TERMINAL_OF_STEP:
            self._end(step, event)
        else:
            number = self._counts.get((step, name), 0) + 1
            self._counts[step, name] = number
        if isinstance(event, e.SignalAccepted) and event.step is not None:
            self._retry(event.step, event)
        return Label(name, step, logical_attempt, number)

    def _end(self, step: str, event: e.Event) -> None:
        if isinstance(event, e.InvokeRetrying):
            self._parked.add(step)
            return
        self._parked.discard(step)
        for name in _BEFORE_TERMINAL:
            self._counts.pop((step, name), None)

    def _retry(self, step: str, event: e.SignalAccepted) -> None:
        if event.signal_type == e.ActType.RETRY_STEP:
            self._parked.discard(step)
            self._logical_attempts[step] = self.logical_attempt(step) + 1
            for name in _BEFORE_TERMINAL:
                self._counts.pop((step, name), None)


_TYPES_WHEN_FAILED: Final[dict[type[e.Event], EventType]] = {
    e.InvokeCompleted: EventType.INVOKE_COMPLETED,
    e.InvokeRetrying: EventType.INVOKE_RETRYING,
}


def idempotency_key(
    run_id: RunId, step: str, logical_attempt: int, event_type: str, plan_version: str
) -> str:
    """The key of one event: the same for every engine attempt of one logical attempt."""
    text = f"{run_id}|{step}|{logical_attempt}|{event_type}|{plan_version}"
    return sha256(text.encode()).hexdigest()


def keys(run_id: RunId, plan_version: str, journal: Iterable[Recorded]) -> Iterator[str]:
    """The key of each entry, in order."""
    labelling = Labelling()
    for entry in journal:
        yield labelling.label(entry.event).key(run_id, plan_version)
