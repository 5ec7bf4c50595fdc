"""The state of a run: a fold over its events.

Nine events change the status; all other events only add to the indexes that
guards, invariants and replay use, so that each check costs O(1).
"""

from collections.abc import Callable, Iterable
from enum import StrEnum
from hashlib import sha256
from typing import Any, Final

from perdure.core.ids import SetId, StepId
from perdure.core.journal import events as e
from perdure.core.ledger import AccountId


class Status(StrEnum):
    PENDING = "pending"
    APPROVED = "approved"
    RUNNING = "running"
    BLOCKED = "blocked"
    PAUSED = "paused"
    CANCELLING = "cancelling"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    CONTINUED = "continued"


TERMINAL: Final = frozenset((Status.COMPLETED, Status.FAILED, Status.CANCELLED, Status.CONTINUED))

ABSENT: Final = object()
"""Marks, in the undo log, a key that the index did not have."""

_ANY: Final = e.AwaitKind.ANY


class State:
    """The current state of a run, by its journal.

    `wait` is what the program is blocked on. It may be set while cancelling: clean-up steps block too, and the status
    stays cancelling. A failed append is rolled back: the indexes that grow with every step (`scheduled`, `attempts`,
    `completed`) are truncated to their former size, all other changes are in an undo log.
    """

    __slots__ = (
        "allocated",
        "attempts",
        "balances",
        "cancel_requested",
        "completed",
        "consumed",
        "deliveries",
        "last_delivered",
        "last_received",
        "logical_attempts",
        "member_of",
        "members",
        "open_steps",
        "parked_steps",
        "paused",
        "scheduled",
        "semaphore",
        "set_counts",
        "started",
        "status",
        "timers",
        "undo",
        "wait",
    )

    def __init__(self) -> None:
        self.status = Status.PENDING
        self.wait: e.ExecutionAwaiting | None = None
        self.paused = False
        self.cancel_requested = False
        self.semaphore = 0
        self.open_steps = 0
        """Number of scheduled, unsettled invokes and timers that are not staged."""
        self.balances: dict[AccountId, int] = {}
        self.scheduled: dict[StepId, bool] = {}
        """Whether the step is staged."""
        self.started: dict[StepId, int] = {}
        """The last attempt that started."""
        self.attempts: dict[tuple[StepId, int], bool] = {}
        self.parked_steps: dict[StepId, bool] = {}
        """Whether the step is parked now; steps that were never parked are absent."""
        self.logical_attempts: dict[StepId, int] = {}
        """The current logical attempt of each step that an operator retried; of all others it is 1."""
        self.completed: dict[StepId, bool] = {}
        """Settled invokes, timers and signal waits; true for an invoke."""
        self.timers: dict[StepId, bool] = {}
        self.allocated: dict[str, bool] = {}
        """Ids of the call tree that are neither invoke nor timer: values, signal waits, join sets."""
        self.deliveries: dict[tuple[str, int], bytes | None] = {}
        """Digest of each delivered signal; `None` once the payload is erased."""
        self.consumed: dict[tuple[str, int], bool] = {}
        self.last_delivered: dict[str, int] = {}
        self.last_received: dict[str, int] = {}
        self.set_counts: dict[SetId, tuple[int, int]] = {}
        """Members submitted and members awaited."""
        self.members: dict[tuple[SetId, StepId], bool] = {}
        """Whether the member was awaited."""
        self.member_of: dict[StepId, SetId] = {}
        self.undo: list[tuple[dict[Any, Any], Any, Any]] = []

    @property
    def is_terminal(self) -> bool:
        return self.status in TERMINAL

    @property
    def wait_is_satisfied(self) -> bool:
        """Whether the program's wait is satisfied; false if it does not wait."""
        wait = self.wait
        if wait is None:
            return False
        if len(wait.waiting_on) == 1:
            return wait.waiting_on[0] in self.completed
        if wait.kind is _ANY:
            return any(map(self.completed.__contains__, wait.waiting_on))
        return all(map(self.completed.__contains__, wait.waiting_on))

    def put(self, index: dict[Any, Any], key: Any, value: Any) -> None:
        """Set `index[key]`, and log the old value for a rollback."""
        self.undo.append((index, key, index.get(key, ABSENT)))
        index[key] = value

    def mark(self) -> tuple[Any, ...]:
        """A point to roll back to. Changes before it become final."""
        self.undo.clear()
        return (
            self.status,
            self.wait,
            self.paused,
            self.cancel_requested,
            self.open_steps,
            self.semaphore,
            len(self.scheduled),
            len(self.attempts),
            len(self.completed),
        )

    def settle(self) -> None:
        """Make the changes since the last mark final. A long undo log would burden the garbage collector."""
        self.undo.clear()

    def roll_back(self, mark: tuple[Any, ...]) -> None:
        """Undo everything since `mark`."""
        (
            self.status,
            self.wait,
            self.paused,
            self.cancel_requested,
            self.open_steps,
            self.semaphore,
            *sizes,
        ) = mark
        while self.undo:
            index, key, old = self.undo.pop()
            if old is ABSENT:
                del index[key]
            else:
                index[key] = old
        growing: tuple[dict[Any, Any], ...] = self.scheduled, self.attempts, self.completed
        for grown, size in zip(growing, sizes, strict=True):
            while len(grown) > size:
                grown.popitem()


def payload_digest(payload: bytes | None) -> bytes | None:
    return None if payload is None else sha256(payload).digest()


def _approved(state: State, _: e.RunApproved) -> None:
    if state.status is Status.PENDING:
        state.status = Status.APPROVED


def _started(state: State, _: e.ExecutionStarted) -> None:
    state.status = Status.RUNNING


def _end_as(status: Status) -> Callable[[State, e.Terminal], None]:
    def end(state: State, _: e.Terminal) -> None:
        state.status = status
        state.wait = None

    return end


def _cancel_requested(state: State, _: e.CancelRequested) -> None:
    # The program resumes to clean up, whatever it waits for and even if it is paused.
    state.status = Status.CANCELLING
    state.cancel_requested = True
    state.wait = None
    state.paused = False


def _awaiting(state: State, event: e.ExecutionAwaiting) -> None:
    state.wait = event
    if state.status is not Status.CANCELLING:
        state.status = Status.BLOCKED


def _resumed(state: State, _: e.ExecutionResumed) -> None:
    state.wait = None
    if state.status is not Status.CANCELLING:
        state.status = Status.RUNNING


def _invoke_scheduled(state: State, event: e.InvokeScheduled) -> None:
    state.scheduled[event.promise_id] = event.staged
    state.open_steps += not event.staged


def _invoke_started(state: State, event: e.InvokeStarted) -> None:
    state.put(state.started, event.promise_id, event.attempt)
    state.attempts[event.promise_id, event.attempt] = True


def _skipped(state: State, event: e.StepSkipped) -> None:
    step = event.promise_id
    state.open_steps -= False in (state.scheduled.get(step), state.timers.get(step))
    state.put(state.completed, step, True)


def _invoke_completed(state: State, event: e.InvokeCompleted) -> None:
    step = event.promise_id
    state.open_steps -= state.scheduled.get(step) is False
    state.completed[step] = True


def _retrying(state: State, event: e.InvokeRetrying) -> None:
    if event.parks:
        state.put(state.parked_steps, event.promise_id, True)


def _accepted(state: State, event: e.SignalAccepted) -> None:
    step = event.step
    if event.signal_type == e.ActType.RETRY_STEP and step is not None:
        state.put(state.parked_steps, step, False)
        state.put(state.logical_attempts, step, state.logical_attempts.get(step, 1) + 1)


def _settle(state: State, step: StepId) -> None:
    """Settle a timer or a signal wait."""
    state.put(state.completed, step, state.completed.get(step, False))


def _place_taken(state: State, event: e.RandomGenerated | e.TimeRecorded) -> None:
    state.put(state.allocated, event.promise_id, True)


def _timer_scheduled(state: State, event: e.TimerScheduled) -> None:
    state.put(state.timers, event.promise_id, event.staged)
    state.open_steps += not event.staged


def _timer_fired(state: State, event: e.TimerFired) -> None:
    state.open_steps -= state.timers.get(event.promise_id) is False
    _settle(state, event.promise_id)


def _signal_delivered(state: State, event: e.SignalDelivered) -> None:
    key = event.signal_name, event.delivery_id
    state.put(state.deliveries, key, payload_digest(event.payload))
    state.put(state.last_delivered, event.signal_name, event.delivery_id)


def _signal_received(state: State, event: e.SignalReceived) -> None:
    state.put(state.consumed, (event.signal_name, event.delivery_id), True)
    state.put(state.last_received, event.signal_name, event.delivery_id)
    if event.stays:
        return
    state.put(state.allocated, event.promise_id, True)
    _settle(state, event.promise_id)


def _set_created(state: State, event: e.JoinSetCreated) -> None:
    state.put(state.allocated, event.join_set_id, True)
    counts = state.set_counts.get(event.join_set_id, (0, 0))
    state.put(state.set_counts, event.join_set_id, counts)


def _set_submitted(state: State, event: e.JoinSetSubmitted) -> None:
    submitted, awaited = state.set_counts.get(event.join_set_id, (0, 0))
    state.put(state.set_counts, event.join_set_id, (submitted + 1, awaited))
    state.put(state.members, (event.join_set_id, event.promise_id), False)
    state.put(state.member_of, event.promise_id, event.join_set_id)


def _set_awaited(state: State, event: e.JoinSetAwaited) -> None:
    submitted, awaited = state.set_counts.get(event.join_set_id, (0, 0))
    state.put(state.set_counts, event.join_set_id, (submitted, awaited + 1))
    state.put(state.members, (event.join_set_id, event.promise_id), True)


def _paused(state: State, _: e.RunPaused) -> None:
    state.status = Status.PAUSED
    state.paused = True


def _unpaused(state: State, _: e.RunResumed) -> None:
    state.status = Status.RUNNING if state.wait is None else Status.BLOCKED
    state.paused = False


FOLD: dict[type[e.Event], Callable[[State, Any], None] | None] = {
    e.ExecutionStarted: _started,
    e.ExecutionCompleted: _end_as(Status.COMPLETED),
    e.ExecutionFailed: _end_as(Status.FAILED),
    e.CancelRequested: _cancel_requested,
    e.ExecutionCancelled: _end_as(Status.CANCELLED),
    e.InvokeScheduled: _invoke_scheduled,
    e.InvokeStarted: _invoke_started,
    e.InvokeCompleted: _invoke_completed,
    e.InvokeRetrying: _retrying,
    e.RandomGenerated: _place_taken,
    e.TimeRecorded: _place_taken,
    e.TimerScheduled: _timer_scheduled,
    e.TimerFired: _timer_fired,
    e.SignalDelivered: _signal_delivered,
    e.SignalReceived: _signal_received,
    e.ExecutionAwaiting: _awaiting,
    e.ExecutionResumed: _resumed,
    e.JoinSetCreated: _set_created,
    e.JoinSetSubmitted: _set_submitted,
    e.JoinSetAwaited: _set_awaited,
    e.RunApproved: _approved,
    e.RunPaused: _paused,
    e.RunResumed: _unpaused,
    e.StepSkipped: _skipped,
    e.SignalAccepted: _accepted,
    e.SignalRejected: None,
    e.RunContinued: _end_as(Status.CONTINUED),
    e.Posted: None,
}


def apply_event(state: State, event: e.Event) -> None:
    """Fold one event into the state, without checks: guards and invariants do these."""
    step = FOLD[type(event)]
    if step is not None:
        step(state, event)


def fold(events: Iterable[e.Event]) -> State:
    """The state after these events, without balances."""
    state = State()
    for event in events:
        apply_event(state, event)
    state.undo.clear()
    return state
