import inspect
import re
from collections.abc import Callable

import pytest
from hypothesis import assume, given, settings

from perdure.core.errors import (
    IllegalAppend,
    InputError,
    InvariantViolation,
    NotEncodable,
    PerdureError,
)
from perdure.core.ids import StepId, message_guid
from perdure.core.journal import events as e
from perdure.core.journal import guards
from perdure.core.journal.journal import Journal
from perdure.core.journal.state import Status
from perdure.core.ledger import ATTEMPT, step_account
from tests.core.journal.strategies import is_refused, legal_journals, legal_tails, stray_events
from tests.core.journal.writer import (
    OTHER_RUN,
    STARTED,
    Writer,
    join_set,
    nonces,
    snapshot,
    started,
    step,
    written,
)

A, B, C = step(0), step(1), step(2)
GUID = message_guid(OTHER_RUN, "result")
S = join_set(9)

SCHEDULED = e.InvokeScheduled(A, "f")
BEGUN = (SCHEDULED, e.InvokeStarted(A, 1))
DONE = (*BEGUN, e.InvokeCompleted(A, 1))
ENTERED = e.Posted("entered", (e.Posting(step_account(A), ATTEMPT),))
PARKED = (*BEGUN, e.InvokeRetrying(A, 1, e.NEVER))
RETRY_A = e.SignalAccepted("s", e.ActType.RETRY_STEP, step=A)
WAITING = (*BEGUN, e.ExecutionAwaiting((A,)))
TIMER = e.TimerScheduled(A, 1, 2)
AWAIT_GO = e.ExecutionAwaiting((A,), e.AwaitKind.SIGNAL, e.AwaitSignal("go", A))
GO, GO_AGAIN = e.SignalDelivered("go", 1), e.SignalDelivered("go", 2)
CANCEL = e.CancelRequested("enough")
COMPLETED, FAILED = e.ExecutionCompleted(released=1), e.ExecutionFailed(released=1)
CONTINUED = e.RunContinued(OTHER_RUN, released=1)

Refusal = tuple[str, list[e.Event], e.Event]
"""A guard, the events of a run after its start, and the event that the guard then refuses."""

REFUSALS: list[Refusal] = [
    ("program_runs", [*WAITING], e.RandomGenerated(B, 1)),
    ("program_runs", [*WAITING], e.TimeRecorded(B, 1)),
    ("program_runs", [*WAITING], e.InvokeScheduled(B, "f")),
    ("program_runs", [*WAITING], e.TimerScheduled(B, 1, 2)),
    ("program_runs", [*WAITING], e.JoinSetCreated(S)),
    ("program_runs", [*WAITING], e.ExecutionAwaiting((B,))),
    ("program_runs", [*WAITING], e.ExecutionCompleted(released=2)),
    ("program_runs", [*WAITING], e.ExecutionFailed(released=2)),
    ("program_runs", [*WAITING], e.RunContinued(OTHER_RUN, released=2)),
    ("program_runs", [e.JoinSetCreated(S), *WAITING], e.JoinSetSubmitted(S, A)),
    (
        "program_runs",
        [
            e.JoinSetCreated(S),
            *DONE,
            e.JoinSetSubmitted(S, A),
            e.TimerScheduled(B, 1, 2),
            e.ExecutionAwaiting((B,)),
        ],
        e.JoinSetAwaited(S, A),
    ),
    ("program_runs", [GO, *WAITING], e.SignalReceived(B, "go", 1)),
    ("program_runs", [GO, e.RunPaused()], e.SignalReceived(B, "go", 1)),
    ("program_runs", [e.RunPaused()], SCHEDULED),
    ("program_runs", [e.RunPaused()], COMPLETED),
    ("program_runs", [CANCEL, *WAITING], e.InvokeScheduled(B, "f")),
    ("program_runs", [CANCEL, *WAITING], e.ExecutionFailed(released=2)),
    ("starts_once", [], STARTED),
    ("starts_once", [CANCEL], STARTED),
    ("starts_once", [], e.RunApproved()),
    ("steps_are_settled", [SCHEDULED], e.ExecutionCompleted(released=2)),
    ("steps_are_settled", [TIMER], e.RunContinued(OTHER_RUN, released=2)),
    ("books_close", [], e.ExecutionCompleted(released=0)),
    ("books_close", [SCHEDULED], COMPLETED),
    ("books_close", [SCHEDULED], FAILED),
    ("books_close", [SCHEDULED], e.ExecutionFailed(released=3)),
    ("books_close", [], e.ExecutionFailed(released=-1)),
    ("books_close", [CANCEL], e.ExecutionCancelled(released=0)),
    ("books_close", [SCHEDULED], CONTINUED),
    ("cancels_once", [CANCEL], CANCEL),
    ("place_is_free", [SCHEDULED], SCHEDULED),
    ("place_is_free", [SCHEDULED], TIMER),
    ("place_is_free", [TIMER], SCHEDULED),
    ("place_is_free", [e.RandomGenerated(A, 1)], SCHEDULED),
    ("place_is_free", [e.TimeRecorded(A, 1)], e.RandomGenerated(A, 1)),
    ("place_is_free", [e.JoinSetCreated(join_set(0))], SCHEDULED),
    ("place_is_free", [SCHEDULED], e.JoinSetCreated(join_set(0))),
    ("place_is_free", [GO, e.SignalReceived(A, "go", 1)], SCHEDULED),
    ("place_is_free", [GO, SCHEDULED], e.SignalReceived(A, "go", 1)),
    ("place_is_free", [e.StepSkipped(A)], SCHEDULED),
    ("member_is_scheduled", [e.JoinSetCreated(S)], e.JoinSetSubmitted(S, A)),
    ("member_is_scheduled", [e.JoinSetCreated(S), TIMER], e.JoinSetSubmitted(S, A)),
    (
        "submits_once",
        [e.JoinSetCreated(S), SCHEDULED, e.JoinSetSubmitted(S, A)],
        e.JoinSetSubmitted(S, A),
    ),
    ("waits_for_promises", [e.JoinSetCreated(S)], e.ExecutionAwaiting((StepId(S),))),
    (
        "waits_for_promises",
        [e.JoinSetCreated(S), SCHEDULED, e.JoinSetSubmitted(S, A)],
        e.ExecutionAwaiting((A, StepId(S)), e.AwaitKind.ANY),
    ),
    ("attempts_in_order", [SCHEDULED], e.InvokeStarted(A, 0)),
    ("attempts_in_order", [SCHEDULED], e.InvokeStarted(A, 2)),
    ("attempts_in_order", [SCHEDULED], e.InvokeStarted(A, -1)),
    ("attempts_in_order", [*BEGUN], e.InvokeStarted(A, 1)),
    ("attempts_in_order", [*BEGUN, e.InvokeStarted(A, 2)], e.InvokeCompleted(A, 1)),
    ("attempts_in_order", [*BEGUN], e.InvokeCompleted(A, 2)),
    ("attempts_in_order", [*BEGUN, e.InvokeStarted(A, 2)], e.InvokeRetrying(A, 1, 5)),
    (
        "steps_are_settled",
        [SCHEDULED, e.Posted("x", (), -1)],
        e.ExecutionCompleted(released=1),
    ),
    ("one_manner", [*BEGUN], e.InvokeCompleted(A, 1, guid=GUID, staged=True)),
    ("one_manner", [TIMER], e.TimerFired(A, guid=GUID, staged=True)),
    ("settles_once", [*DONE], e.InvokeCompleted(A, 1)),
    ("settles_once", [*DONE], e.StepSkipped(A, "", 1)),
    ("settles_once", [*BEGUN, e.StepSkipped(A, "", 1)], e.InvokeCompleted(A, 1)),
    ("settles_once", [TIMER, e.TimerFired(A)], e.TimerFired(A)),
    ("settles_once", [TIMER, e.StepSkipped(A, "", 1)], e.TimerFired(A)),
    ("releases_what_it_holds", [SCHEDULED], e.StepSkipped(A)),
    ("releases_what_it_holds", [SCHEDULED, e.TimerScheduled(B, 1, 2)], e.StepSkipped(A, "", 2)),
    ("releases_what_it_holds", [], e.StepSkipped(A, "", 1)),
    ("deliveries_in_order", [], e.SignalDelivered("go", 0)),
    ("deliveries_in_order", [], GO_AGAIN),
    ("deliveries_in_order", [GO], GO),
    ("first_in_first_out", [GO, GO_AGAIN], e.SignalReceived(A, "go", 2)),
    (
        "receives_what_it_awaits",
        [e.SignalDelivered("stop", 1), AWAIT_GO],
        e.SignalReceived(A, "stop", 1),
    ),
    ("waits_for_something", [], e.ExecutionAwaiting((), e.AwaitKind.ALL)),
    ("wait_is_satisfied", [], e.ExecutionResumed()),
    ("wait_is_satisfied", [*WAITING], e.ExecutionResumed()),
    ("wait_is_satisfied", [GO, AWAIT_GO], e.ExecutionResumed()),
    (
        "wait_is_satisfied",
        [*DONE, e.ExecutionAwaiting((A, B), e.AwaitKind.ALL)],
        e.ExecutionResumed(),
    ),
    (
        "wait_is_satisfied",
        [e.ExecutionAwaiting((A, B), e.AwaitKind.ANY)],
        e.ExecutionResumed(),
    ),
    ("program_runs", [*DONE, e.ExecutionAwaiting((A,)), e.RunPaused()], e.ExecutionResumed()),
    ("one_manner", [SCHEDULED], e.StepSkipped(A, staged=True)),
    ("one_manner", [ENTERED, e.InvokeScheduled(A, "f", staged=True)], e.StepSkipped(A, "", 1)),
    ("retries_parked_steps", [*BEGUN], e.SignalAccepted("s", "RETRY_STEP", step=A)),
    ("retries_parked_steps", [*PARKED], e.SignalAccepted("s", "RETRY_STEP", step=B)),
    ("retries_parked_steps", [*PARKED, RETRY_A], RETRY_A),
    ("pauses_once", [e.RunPaused()], e.RunPaused()),
    ("pauses_once", [CANCEL], e.RunPaused()),
    ("pauses_once", [], e.RunResumed()),
    ("pauses_once", [e.RunPaused(), CANCEL], e.RunResumed()),
]

NAMED = [
    pytest.param(*refusal, id=f"{number} {refusal[0]} {type(refusal[2]).__name__}")
    for number, refusal in enumerate(REFUSALS)
]


def refusal_of(append: Callable[[], object]) -> PerdureError:
    with pytest.raises(PerdureError) as refused:
        append()
    return refused.value


def test_every_guard_has_a_case() -> None:
    source = inspect.getsource(guards)
    names = set(re.findall(r'_refuse\(\s*"(\w+)"', source))
    assert names == {guard for guard, _, _ in REFUSALS}


@pytest.mark.parametrize(("guard", "before", "event"), NAMED)
def test_a_refusal_names_its_guard(guard: str, before: list[e.Event], event: e.Event) -> None:
    writer = started(*before)
    with pytest.raises(IllegalAppend) as refused:
        writer.append(event)
    assert refused.value.guard == guard
    assert refused.value.what.startswith(f"{guard}: {type(event).__name__} is refused, ")


@pytest.mark.parametrize(("guard", "before", "event"), NAMED)
def test_refused_event_changes_nothing(guard: str, before: list[e.Event], event: e.Event) -> None:
    writer = started(*before)
    then = snapshot(writer.journal)
    refusal_of(lambda: writer.append(event))
    assert snapshot(writer.journal) == then


@pytest.mark.parametrize(("guard", "before", "event"), NAMED)
def test_legal_events_before_a_refused_one_are_taken_back(
    guard: str, before: list[e.Event], event: e.Event
) -> None:
    writer = Writer()
    then = snapshot(writer.journal)
    refusal_of(lambda: writer.append(STARTED, *before, event))
    assert snapshot(writer.journal) == then


@pytest.mark.parametrize(("guard", "before", "event"), NAMED)
def test_journal_accepts_events_after_a_refusal(
    guard: str, before: list[e.Event], event: e.Event
) -> None:
    writer = started()
    refusal_of(lambda: writer.append(*before, event))
    writer.append(*before)
    assert snapshot(writer.journal) == snapshot(started(*before).journal)


@settings(max_examples=300, deadline=None)
@given(legal_journals(), legal_tails(), stray_events)
def test_a_refused_append_changes_nothing(
    writer: Writer, go_on: Callable[[Writer], None], stray: e.Event
) -> None:
    then = snapshot(writer.journal)
    ahead = Writer()
    ahead.journal.replay(writer.entries)
    go_on(ahead)
    tail, reached = ahead.events, snapshot(ahead.journal)
    assume(is_refused(ahead, stray))

    refusal_of(lambda: writer.append(*tail, stray))
    assert snapshot(writer.journal) == then
    writer.append(*tail)
    assert snapshot(writer.journal) == reached


def test_broken_invariant_changes_nothing() -> None:
    writer = started(*DONE)
    then = snapshot(writer.journal)
    with pytest.raises(InvariantViolation) as refused:
        writer.append(e.InvokeScheduled(B, "f"), e.InvokeStarted(C, 1))
    assert refused.value.names == ("SE-1 started_requires_scheduled",)
    assert snapshot(writer.journal) == then


def test_too_little_entropy_changes_nothing() -> None:
    writer = started()
    then = snapshot(writer.journal)
    with pytest.raises(InputError, match="31 random bytes for 2 events"):
        writer.journal.append([SCHEDULED, CANCEL], 1, nonces(0, 2)[:31])
    assert snapshot(writer.journal) == then


def test_appending_nothing_changes_nothing() -> None:
    writer = started(SCHEDULED)
    then = snapshot(writer.journal)
    appended = writer.append()
    assert snapshot(writer.journal) == then
    assert (appended.entries, appended.postings, appended.seq_after) == ((), {}, 2)


def test_event_that_can_not_be_written_changes_nothing() -> None:
    writer = started()
    then = snapshot(writer.journal)
    with pytest.raises(NotEncodable, match=r"entry 2 .*surrogates"):
        writer.append(SCHEDULED, e.RunPaused("\ud800"))
    assert snapshot(writer.journal) == then


# Which event is legal in which state


@pytest.mark.parametrize("end", [COMPLETED, FAILED, CONTINUED])
@pytest.mark.parametrize("before", [(), (CANCEL,)], ids=["running", "cancelling"])
def test_program_may_end_while_it_runs(before: tuple[e.Event, ...], end: e.Event) -> None:
    assert started(*before, end).state.is_terminal


@pytest.mark.parametrize("action", [SCHEDULED, TIMER, e.RandomGenerated(A, 1)])
@pytest.mark.parametrize("before", [(), (CANCEL,)], ids=["running", "cancelling"])
def test_program_may_act_while_it_runs_and_while_it_cleans_up(
    before: tuple[e.Event, ...], action: e.Event
) -> None:
    assert started(*before, action).events[-1] == action


OPEN = {
    "running": (),
    "blocked": (*WAITING,),
    "paused": (e.RunPaused(),),
    "cancelling": (CANCEL,),
    "cancelling and waiting": (CANCEL, *WAITING),
}


@pytest.mark.parametrize("before", OPEN.values(), ids=OPEN.keys())
def test_signal_is_delivered_in_every_open_state(before: tuple[e.Event, ...]) -> None:
    assert ("go", 1) in started(*before, GO).state.deliveries


@pytest.mark.parametrize("before", OPEN.values(), ids=OPEN.keys())
def test_result_and_timer_arrive_in_every_open_state(before: tuple[e.Event, ...]) -> None:
    steps = (e.InvokeScheduled(B, "f"), e.TimerScheduled(C, 1, 2))
    arrivals = (e.InvokeStarted(B, 1), e.InvokeCompleted(B, 1), e.TimerFired(C))
    assert {B, C} <= set(started(*steps, *before, *arrivals).state.completed)


ENDS = {
    "completed": (COMPLETED,),
    "failed": (FAILED,),
    "continued": (CONTINUED,),
    "cancelled": (CANCEL, e.ExecutionCancelled(released=1)),
}


@pytest.mark.parametrize("event", [GO, CANCEL, e.RunPaused(), e.Posted("x", ())])
@pytest.mark.parametrize("before", ENDS.values(), ids=ENDS.keys())
def test_no_event_is_accepted_after_the_end(before: tuple[e.Event, ...], event: e.Event) -> None:
    writer = started(*before)
    with pytest.raises(InvariantViolation) as refused:
        writer.append(event)
    assert refused.value.names == ("S-4 terminal_is_last",)


def test_no_event_is_accepted_before_the_start() -> None:
    with pytest.raises(InvariantViolation) as refused:
        Writer().append(GO)
    assert refused.value.names == ("S-2 starts_with_started",)


def test_approved_run_starts() -> None:
    assert written(e.RunApproved("ops"), STARTED).state.status is Status.RUNNING


def test_run_is_cancelled_while_it_is_blocked() -> None:
    state = started(*WAITING, CANCEL).state
    assert (state.status, state.wait) == (Status.CANCELLING, None)


def test_cancelling_wakes_a_paused_run() -> None:
    state = started(e.RunPaused(), CANCEL, SCHEDULED).state
    assert (state.status, state.paused) == (Status.CANCELLING, False)


def test_cancelling_stays_while_a_clean_up_step_is_awaited_and_resumed() -> None:
    writer = started(CANCEL)
    seen = []
    for event in (*BEGUN, e.ExecutionAwaiting((A,)), e.InvokeCompleted(A, 1), e.ExecutionResumed()):
        writer.append(event)
        seen.append((writer.state.status, writer.state.wait is not None))
    assert seen == [(Status.CANCELLING, waits) for waits in (False, False, True, True, False)]


def test_cancelled_run_releases_its_open_obligations() -> None:
    state = started(*WAITING, CANCEL, e.ExecutionCancelled(released=2)).state
    assert (state.status, state.semaphore) == (Status.CANCELLED, 0)


def test_paused_run_continues_after_run_resumed() -> None:
    assert started(e.RunPaused(), e.RunResumed(), SCHEDULED).state.status is Status.RUNNING


def test_lost_attempt_is_followed_by_another_without_a_retry() -> None:
    assert started(*BEGUN, e.InvokeStarted(A, 2), e.InvokeCompleted(A, 2)).state.completed[A]


@pytest.mark.parametrize(
    ("wait", "happened", "satisfied"),
    [
        (e.ExecutionAwaiting((A,)), [], False),
        (e.ExecutionAwaiting((A,)), [A], True),
        (e.ExecutionAwaiting((A, B), e.AwaitKind.ALL), [A], False),
        (e.ExecutionAwaiting((A, B), e.AwaitKind.ALL), [A, B], True),
        (e.ExecutionAwaiting((A, B)), [B], False),
        (e.ExecutionAwaiting((A, B), e.AwaitKind.ANY), [], False),
        (e.ExecutionAwaiting((A, B), e.AwaitKind.ANY), [B], True),
    ],
)
def test_wait_is_satisfied_by_its_kind(
    wait: e.ExecutionAwaiting, happened: list[StepId], satisfied: bool
) -> None:
    timers = (e.TimerScheduled(place, 1, 2) for place in (A, B))
    writer = started(*timers, wait, *(e.TimerFired(place) for place in happened))
    assert writer.state.wait_is_satisfied is satisfied
    assert is_refused(writer, e.ExecutionResumed()) is not satisfied


def test_run_that_does_not_wait_is_not_satisfied() -> None:
    assert not started().state.wait_is_satisfied


def test_signal_is_received_for_the_wait_on_it_with_a_timeout() -> None:
    both = e.ExecutionAwaiting((A, B), e.AwaitKind.ANY)
    writer = started(e.TimerScheduled(B, 1, 2), both, GO, e.SignalReceived(A, "go", 1))
    assert writer.state.wait_is_satisfied


def test_signals_of_one_name_are_received_in_the_order_of_delivery() -> None:
    receipts = (e.SignalReceived(A, "go", 1), e.SignalReceived(B, "go", 2))
    assert started(GO, GO_AGAIN, *receipts).state.last_received == {"go": 2}


def test_new_journal_is_pending_and_empty() -> None:
    journal = Journal(OTHER_RUN)
    assert (journal.state.status, journal.seq, journal.state.semaphore) == (Status.PENDING, 0, 0)
