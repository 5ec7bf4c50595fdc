"""State guards: which event may follow in which state, enforced by the function that appends.

Invariants hold for any journal; guards describe the life of a run: the program acts only while it
runs, results and signals arrive while the run is open, nothing happens twice. A refused event changes
nothing.
"""

from collections.abc import Callable
from typing import Any, Final, NoReturn

from perdure.core.errors import IllegalAppend
from perdure.core.ids import SetId, StepId
from perdure.core.journal import events as e
from perdure.core.journal.state import State, Status
from perdure.core.ledger import MessageLedger, message_account

_ACTIVE: Final = frozenset((Status.RUNNING, Status.CANCELLING))


def _refuse(guard: str, event: e.Event, why: str, remedy: str) -> NoReturn:
    raise IllegalAppend(guard, f"{guard}: {type(event).__name__} is refused, {why}", remedy)


def _program_runs(state: State, event: e.Event) -> None:
    """Only a running program can act: not blocked, not paused, not ended.

    A cancelling program runs too: its clean-up steps are ordinary steps.
    """
    if state.paused:
        _refuse("program_runs", event, "the run is paused", "append RunResumed first")
    if state.wait is not None or state.status not in _ACTIVE:
        why = f"the run is {state.status}" + (" and waits" if state.wait is not None else "")
        _refuse("program_runs", event, why, "append ExecutionResumed first")


def _start(state: State, event: e.ExecutionStarted) -> None:
    if state.status not in (Status.PENDING, Status.APPROVED):
        _refuse("starts_once", event, f"the run is {state.status}", "start another run")


def _approve(state: State, event: e.RunApproved) -> None:
    if state.status is not Status.PENDING:
        _refuse("starts_once", event, f"the run is {state.status}", "approve before the start")


def _fail(state: State, event: e.ExecutionFailed) -> None:
    _program_runs(state, event)
    _close_books(state, event)


def _finish(state: State, event: e.ExecutionCompleted | e.RunContinued) -> None:
    """Completing and continuing require that no step is open: at most the program's own obligation is released.

    A graph may complete at a threshold above 0: its terminal entry then names the message that reached it and
    releases the open obligations.
    """
    _program_runs(state, event)
    if _reached_threshold(state, event):
        _close_books(state, event)
        return
    if event.released > 1:
        _steps_are_open(event, event.released - 1)
    _close_books(state, event)
    if state.open_steps:
        _steps_are_open(event, state.open_steps)


def _reached_threshold(state: State, event: e.Terminal) -> bool:
    if event.guid is None:
        return False
    return MessageLedger(state.balances.get(message_account(event.guid), 0)).closed


def _steps_are_open(event: e.Event, count: int) -> NoReturn:
    why = f"{count} steps are open"
    _refuse("steps_are_settled", event, why, "complete, cancel or skip them first")


def _cancelled(state: State, event: e.ExecutionCancelled) -> None:
    _close_books(state, event)


def _close_books(state: State, event: e.Terminal) -> None:
    if event.released != state.semaphore:
        why = f"it releases {event.released} obligations, but {state.semaphore} are open"
        _refuse("books_close", event, why, "a terminal entry brings the semaphore to 0")


def _cancel(state: State, event: e.CancelRequested) -> None:
    if state.cancel_requested:
        _refuse("cancels_once", event, "the run is cancelling", "acknowledge the second request")


def _free_place(state: State, event: e.Event, place: str) -> None:
    """One operation takes one id of the call tree; a skip takes it too."""
    if (
        place in state.scheduled
        or place in state.timers
        or place in state.allocated
        or place in state.completed
    ):
        _refuse("place_is_free", event, f"{place} is taken", "allocate the next child id")


def _schedule(
    state: State,
    event: e.InvokeScheduled | e.TimerScheduled | e.RandomGenerated | e.TimeRecorded,
) -> None:
    _program_runs(state, event)
    _free_place(state, event, event.promise_id)


def _create_set(state: State, event: e.JoinSetCreated) -> None:
    _program_runs(state, event)
    _free_place(state, event, event.join_set_id)


def _submit(state: State, event: e.JoinSetSubmitted) -> None:
    _program_runs(state, event)
    if event.promise_id not in state.scheduled:
        why = f"{event.promise_id} is not scheduled"
        _refuse("member_is_scheduled", event, why, "append InvokeScheduled first")
    if (event.join_set_id, event.promise_id) in state.members:
        _refuse("submits_once", event, f"{event.promise_id} is a member", "submit it once")


def _begin_attempt(state: State, event: e.InvokeStarted) -> None:
    last = state.started.get(event.promise_id, 0)
    if event.attempt != last + 1:
        why = f"attempt {event.attempt} of {event.promise_id} follows attempt {last}"
        _refuse("attempts_in_order", event, why, "number attempts 1, 2, 3 and so on")


def _end_attempt(state: State, event: e.Event, step: StepId, attempt: int) -> None:
    if attempt != state.started.get(step, attempt):
        why = f"attempt {attempt} of {step} is not the last that started"
        _refuse("attempts_in_order", event, why, "drop the outcome of an abandoned attempt")


def _same_manner(event: e.Event, staged: bool, planned: bool | None) -> None:
    """Both legs of a step are staged, or neither is: its digits depend on it."""
    if planned is not None and staged != planned:
        why = f"the step was scheduled {'staged' if planned else 'whole'}"
        _refuse("one_manner", event, why, "end a step staged exactly if it was scheduled staged")


def _complete(state: State, event: e.InvokeCompleted) -> None:
    _same_manner(event, event.staged, state.scheduled.get(event.promise_id))
    _settle_once(state, event, event.promise_id)
    _end_attempt(state, event, event.promise_id, event.attempt)


def _retry(state: State, event: e.InvokeRetrying) -> None:
    _end_attempt(state, event, event.promise_id, event.failed_attempt)


def _settle_once(state: State, event: e.Event, step: StepId) -> None:
    if step in state.completed:
        _refuse("settles_once", event, f"{step} is settled", "acknowledge the late message")


def _fire(state: State, event: e.TimerFired) -> None:
    _same_manner(event, event.staged, state.timers.get(event.promise_id))
    _settle_once(state, event, event.promise_id)


def _skip(state: State, event: e.StepSkipped) -> None:
    """Skipping an open step closes its one obligation; any other step has none.

    The obligations of a staged step are closed by entries of their own.
    """
    step = event.promise_id
    _settle_once(state, event, step)
    planned = state.scheduled.get(step, state.timers.get(step))
    _same_manner(event, event.staged, planned)
    held = int(planned is not None and not event.staged)
    if event.released != held:
        why = f"it releases {event.released} obligations, but {step} holds {held}"
        _refuse("releases_what_it_holds", event, why, f"append it with {held} released")


def _deliver(state: State, event: e.SignalDelivered) -> None:
    due = state.last_delivered.get(event.signal_name, 0) + 1
    if event.delivery_id != due:
        why = f"delivery {event.delivery_id} of {event.signal_name!r} comes where {due} is due"
        _refuse("deliveries_in_order", event, why, "number deliveries of a name 1, 2, 3 and so on")


def _receive(state: State, event: e.SignalReceived) -> None:
    if event.staged:
        _answer_of_invoke_or_hook(state, event)
    else:
        _free_place(state, event, event.promise_id)
    due = state.last_received.get(event.signal_name, 0) + 1
    if event.delivery_id > due:
        why = f"delivery {event.delivery_id} of {event.signal_name!r} overtakes {due}"
        _refuse("first_in_first_out", event, why, "consume the oldest delivery")
    if state.paused:
        _refuse("program_runs", event, "the run is paused", "append RunResumed first")
    wait = state.wait
    if wait is not None and event.promise_id not in wait.waiting_on:
        why = f"the run waits on {', '.join(wait.waiting_on)}"
        _refuse("program_runs", event, why, "append ExecutionResumed first")
    for signal in () if wait is None else wait.signals:
        if signal.promise_id == event.promise_id and signal.name != event.signal_name:
            why = f"{event.promise_id} waits for {signal.name!r}"
            _refuse("receives_what_it_awaits", event, why, "consume a delivery of that name")


def _answer_of_invoke_or_hook(state: State, event: e.SignalReceived) -> None:
    """A staged signal may end a hook that has a timer, or follow an invoke that responded with 202."""
    step = event.promise_id
    if step in state.completed and step not in state.scheduled:
        _settle_once(state, event, step)


def _wait(state: State, event: e.ExecutionAwaiting) -> None:
    _program_runs(state, event)
    if not event.waiting_on:
        _refuse("waits_for_something", event, "it waits on nothing", "name what it waits for")
    if state.set_counts:
        for step in event.waiting_on:
            if SetId(step) in state.set_counts:
                why = f"{step} is a join set, which never completes"
                _refuse("waits_for_promises", event, why, "wait for its members")


def _accept(state: State, event: e.SignalAccepted) -> None:
    if event.signal_type != e.ActType.RETRY_STEP:
        return
    if event.step is None or not state.parked_steps.get(event.step):
        _refuse("retries_parked_steps", event, f"{event.step} is not parked", "reject the act")


def _resume(state: State, event: e.ExecutionResumed) -> None:
    if state.paused:
        _refuse("program_runs", event, "the run is paused", "append RunResumed first")
    if state.wait is None:
        _refuse("wait_is_satisfied", event, "the run does not wait", "drop the event")
    if not state.wait_is_satisfied:
        why = f"{state.wait.kind} of {', '.join(state.wait.waiting_on)} has not happened"
        _refuse("wait_is_satisfied", event, why, "append what happened first")


def _pause(state: State, event: e.RunPaused) -> None:
    if state.paused or state.status is Status.CANCELLING:
        why = "the run is paused" if state.paused else "the run is cancelling"
        _refuse("pauses_once", event, why, "drop the event")


def _unpause(state: State, event: e.RunResumed) -> None:
    if not state.paused:
        _refuse("pauses_once", event, "the run is not paused", "drop the event")


GUARDS: Final[dict[type[e.Event], Callable[[State, Any], None] | None]] = {
    e.ExecutionStarted: _start,
    e.ExecutionCompleted: _finish,
    e.ExecutionFailed: _fail,
    e.CancelRequested: _cancel,
    e.ExecutionCancelled: _cancelled,
    e.InvokeScheduled: _schedule,
    e.InvokeStarted: _begin_attempt,
    e.InvokeCompleted: _complete,
    e.InvokeRetrying: _retry,
    e.RandomGenerated: _schedule,
    e.TimeRecorded: _schedule,
    e.TimerScheduled: _schedule,
    e.TimerFired: _fire,
    e.SignalDelivered: _deliver,
    e.SignalReceived: _receive,
    e.ExecutionAwaiting: _wait,
    e.ExecutionResumed: _resume,
    e.JoinSetCreated: _create_set,
    e.JoinSetSubmitted: _submit,
    e.JoinSetAwaited: _program_runs,
    e.RunApproved: _approve,
    e.RunPaused: _pause,
    e.RunResumed: _unpause,
    e.StepSkipped: _skip,
    e.SignalAccepted: _accept,
    e.SignalRejected: None,
    e.RunContinued: _finish,
    e.Posted: None,
}
"""`None`: allowed in every state that is not terminal, which S-2 and S-4 check."""
