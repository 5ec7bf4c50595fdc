"""The 20 invariants, checked for one append: may this event follow this state?

Each check is a lookup in the state's indexes, so an append costs O(1) however long the journal is.
`invariants` has the definitions; here they are arranged by the event that can break them.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from perdure.core.journal import events as e
from perdure.core.journal.state import State, Status, payload_digest

Broken = Sequence[tuple[str, str]]
"""Broken invariants: name, and the values at fault."""

_NONE: Broken = ()
_SIGNAL: Final = e.AwaitKind.SIGNAL


def _cancelled(state: State, _: e.ExecutionCancelled) -> Broken:
    if state.cancel_requested:
        return _NONE
    return [("S-5 cancelled_requires_requested", "cancelled without a request")]


def _started(state: State, event: e.InvokeStarted) -> Broken:
    step = event.promise_id
    if step in state.scheduled and not state.completed.get(step):
        return _NONE
    broken = []
    if step not in state.scheduled:
        what = f"{step} started, but was not scheduled"
        broken.append(("SE-1 started_requires_scheduled", what))
    if state.completed.get(step):
        what = f"InvokeStarted of {step}, which is complete"
        broken.append(("SE-4 no_events_after_completed", what))
    return broken


def _completed(state: State, event: e.InvokeCompleted) -> Broken:
    if event.promise_id in state.started:
        return _NONE
    what = f"{event.promise_id} completed, but was not started"
    return [("SE-2 completed_requires_started", what)]


def _retrying(state: State, event: e.InvokeRetrying) -> Broken:
    step = event.promise_id
    broken = []
    if (step, event.failed_attempt) not in state.attempts:
        what = f"attempt {event.failed_attempt} of {step} is retried, but was not started"
        broken.append(("SE-3 retrying_requires_started", what))
    if state.completed.get(step):
        what = f"InvokeRetrying of {step}, which is complete"
        broken.append(("SE-4 no_events_after_completed", what))
    return broken


def _fired(state: State, event: e.TimerFired) -> Broken:
    if event.promise_id in state.timers:
        return _NONE
    what = f"timer {event.promise_id} fired, but was not scheduled"
    return [("CF-1 timer_fired_requires_scheduled", what)]


def _received(state: State, event: e.SignalReceived) -> Broken:
    key = event.signal_name, event.delivery_id
    what = f"delivery {event.delivery_id} of {event.signal_name!r}"
    cf2 = "CF-2 signal_received_requires_delivered"
    broken = []
    if key not in state.deliveries:
        broken.append((cf2, f"{what} is received, but was not delivered"))
    else:
        sent, got = state.deliveries[key], payload_digest(event.payload)
        if sent is not None and got is not None and sent != got:
            broken.append((cf2, f"{what} is received with another payload"))
    if key in state.consumed:
        broken.append(("CF-3 signal_consumed_once", f"{what} is consumed twice"))
    return broken


def _awaiting(_: State, event: e.ExecutionAwaiting) -> Broken:
    if (event.signal is None and event.kind is not _SIGNAL) or event.is_consistent:
        return _NONE
    what = f"awaits {event.signal}, but waits on {event.waiting_on}"
    return [("CF-4 await_signal_consistent", what)]


def _submitted(state: State, event: e.JoinSetSubmitted) -> Broken:
    broken = []
    members, awaited = state.set_counts.get(event.join_set_id, (None, 0))
    if members is None:
        what = f"set {event.join_set_id} was not created"
        broken.append(("JS-1 submit_requires_created", what))
    if awaited:
        what = f"set {event.join_set_id} is closed by its first await"
        broken.append(("JS-2 no_submit_after_await", what))
    owner = state.member_of.get(event.promise_id, event.join_set_id)
    if owner != event.join_set_id:
        what = f"{event.promise_id} is in set {owner} already"
        broken.append(("JS-7 promise_single_owner", what))
    return broken


def _awaited(state: State, event: e.JoinSetAwaited) -> Broken:
    set_id, step = event.join_set_id, event.promise_id
    consumed = state.members.get((set_id, step))
    broken = []
    if consumed is None:
        broken.append(("JS-3 awaited_requires_member", f"{step} is not in set {set_id}"))
    if not state.completed.get(step):
        broken.append(("JS-4 awaited_requires_completed", f"{step} is awaited, but not complete"))
    if consumed:
        broken.append(("JS-5 no_double_consume", f"{step} of set {set_id} is consumed twice"))
    submitted, awaited = state.set_counts.get(set_id, (0, 0))
    if awaited >= submitted:
        what = f"set {set_id} gives more results than it has members"
        broken.append(("JS-6 consume_bounded", what))
    return broken


BY_EVENT: Final[dict[type[e.Event], Callable[[State, Any], Broken]]] = {
    e.ExecutionCancelled: _cancelled,
    e.InvokeStarted: _started,
    e.InvokeCompleted: _completed,
    e.InvokeRetrying: _retrying,
    e.TimerFired: _fired,
    e.SignalReceived: _received,
    e.ExecutionAwaiting: _awaiting,
    e.JoinSetSubmitted: _submitted,
    e.JoinSetAwaited: _awaited,
}

BEGUN_AND_OPEN: Final = frozenset(
    (Status.RUNNING, Status.BLOCKED, Status.PAUSED, Status.CANCELLING)
)


def broken_by(state: State, expected_seq: int, seq: int, event: e.Event) -> Broken:
    """The invariants that appending `event` as entry `seq` would break; empty if the event is legal."""
    by_event = BY_EVENT.get(type(event))
    broken = _NONE if by_event is None else by_event(state, event)
    if seq == expected_seq and state.status in BEGUN_AND_OPEN:
        return broken
    return [*_out_of_place(state, expected_seq, seq, event), *broken]


def _out_of_place(state: State, expected_seq: int, seq: int, event: e.Event) -> Broken:
    """The structural invariants: sequence numbers, first event, terminal event."""
    broken = []
    name = type(event).__name__
    if seq != expected_seq:
        what = f"expected sequence {expected_seq}, found {seq}"
        broken.append(("S-1 monotonic_sequence", what))
    if state.is_terminal:
        if isinstance(event, e.Terminal):
            broken.append(("S-3 single_terminal", f"{name} is a second terminal event"))
        else:
            broken.append(("S-4 terminal_is_last", f"{name} follows the terminal event"))
    elif state.status not in BEGUN_AND_OPEN:
        if not isinstance(event, e.ExecutionStarted | e.RunApproved):
            broken.append(("S-2 starts_with_started", f"{name} comes before ExecutionStarted"))
    return broken
