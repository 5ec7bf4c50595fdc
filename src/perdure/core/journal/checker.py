"""The 20 invariants for one append: is this event, at this place, legal after that state?

Each question is a lookup in the state's indexes, so an append costs O(1) however long the journal is.
`invariants` has the definitions; here they are arranged by the event that can break them.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

from perdure.core.journal import events as e
from perdure.core.journal.state import State, Status, payload_digest

Broken = Iterator[tuple[str, str]]
"""Name of an invariant, and the values at fault."""


def _cancelled(state: State, _: e.ExecutionCancelled) -> Broken:
    if not state.cancel_requested:
        yield "S-5 cancelled_requires_requested", "cancelled, but nobody requested it"


def _started(state: State, event: e.InvokeStarted) -> Broken:
    step = event.promise_id
    if step not in state.scheduled:
        yield "SE-1 started_requires_scheduled", f"{step} started, but was not scheduled"
    if state.completed.get(step):
        yield "SE-4 no_events_after_completed", f"InvokeStarted of {step}, which is complete"


def _completed(state: State, event: e.InvokeCompleted) -> Broken:
    if event.promise_id not in state.started:
        what = f"{event.promise_id} completed, but was not started"
        yield "SE-2 completed_requires_started", what


def _retrying(state: State, event: e.InvokeRetrying) -> Broken:
    step = event.promise_id
    if event.failed_attempt < 0 or not state.started.get(step, 0) >> event.failed_attempt & 1:
        what = f"attempt {event.failed_attempt} of {step} is retried, but was not started"
        yield "SE-3 retrying_requires_started", what
    if state.completed.get(step):
        yield "SE-4 no_events_after_completed", f"InvokeRetrying of {step}, which is complete"


def _fired(state: State, event: e.TimerFired) -> Broken:
    if event.promise_id not in state.timers:
        what = f"timer {event.promise_id} fired, but was not scheduled"
        yield "CF-1 timer_fired_requires_scheduled", what


def _received(state: State, event: e.SignalReceived) -> Broken:
    key = event.signal_name, event.delivery_id
    what = f"delivery {event.delivery_id} of {event.signal_name!r}"
    if key not in state.deliveries:
        yield (
            "CF-2 signal_received_requires_delivered",
            f"{what} is received, but was not delivered",
        )
    else:
        sent, got = state.deliveries[key], payload_digest(event.payload)
        if sent is not None and got is not None and sent != got:
            yield (
                "CF-2 signal_received_requires_delivered",
                f"{what} is received with another payload",
            )
    if key in state.consumed:
        yield "CF-3 signal_consumed_once", f"{what} is consumed twice"


def _awaiting(_: State, event: e.ExecutionAwaiting) -> Broken:
    signal = event.signal
    if event.kind is e.AwaitKind.SIGNAL:
        agrees = signal is not None and event.waiting_on == (signal.promise_id,)
    else:
        agrees = signal is None
    if not agrees:
        yield "CF-4 await_signal_consistent", f"awaits {signal}, but waits on {event.waiting_on}"


def _submitted(state: State, event: e.JoinSetSubmitted) -> Broken:
    members, awaited = state.set_counts.get(event.join_set_id, (None, 0))
    if members is None:
        yield "JS-1 submit_requires_created", f"set {event.join_set_id} was not created"
    if awaited:
        yield "JS-2 no_submit_after_await", f"set {event.join_set_id} is closed by its first await"
    owner = state.member_of.get(event.promise_id, event.join_set_id)
    if owner != event.join_set_id:
        yield "JS-7 promise_single_owner", f"{event.promise_id} is in set {owner} already"


def _awaited(state: State, event: e.JoinSetAwaited) -> Broken:
    set_id, step = event.join_set_id, event.promise_id
    consumed = state.members.get((set_id, step))
    if consumed is None:
        yield "JS-3 awaited_requires_member", f"{step} is not in set {set_id}"
    if not state.completed.get(step):
        yield "JS-4 awaited_requires_completed", f"{step} is awaited, but not complete"
    if consumed:
        yield "JS-5 no_double_consume", f"{step} of set {set_id} is consumed twice"
    submitted, awaited = state.set_counts.get(set_id, (0, 0))
    if awaited >= submitted:
        yield "JS-6 consume_bounded", f"set {set_id} gives more results than it was given"


_BY_EVENT: Final[dict[type[e.Event], Callable[[State, Any], Broken]]] = {
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

_NOT_BEGUN: Final = (Status.PENDING, Status.APPROVED)


def broken_by(state: State, expected_seq: int, seq: int, event: e.Event) -> list[tuple[str, str]]:
    """The invariants that appending `event` as entry `seq` would break; empty if it may stand."""
    broken: list[tuple[str, str]] = []
    name = type(event).__name__
    if seq != expected_seq:
        what = f"expected sequence {expected_seq}, found {seq}"
        broken.append(("S-1 monotonic_sequence", what))
    if state.status in _NOT_BEGUN:
        if not isinstance(event, e.ExecutionStarted | e.RunApproved):
            broken.append(("S-2 starts_with_started", f"{name} comes before ExecutionStarted"))
    elif state.is_terminal:
        if isinstance(event, e.Terminal):
            broken.append(("S-3 single_terminal", f"{name} is a second terminal event"))
        else:
            broken.append(("S-4 terminal_is_last", f"{name} follows the terminal event"))
    by_event = _BY_EVENT.get(type(event))
    if by_event is not None:
        broken.extend(by_event(state, event))
    return broken
