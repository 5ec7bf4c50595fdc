from typing import NamedTuple

import pytest

from perdure.core.ids import StepId
from perdure.core.journal import checker
from perdure.core.journal import events as e
from perdure.core.journal.invariants import INVARIANTS, Recorded, consume_bounded, violations
from perdure.core.journal.state import State, apply_event
from tests.core.journal.writer import OTHER_RUN, STARTED, At, join_set, started, step

A, B = step(0), step(1)
S, T = join_set(8), join_set(9)


def places(events: list[e.Event]) -> list[At]:
    return [At(seq, event) for seq, event in enumerate(events)]


class Case(NamedTuple):
    """Two journals that differ in their last entry: on one an invariant holds, one breaks it."""

    before: list[e.Event]
    holds: e.Event | None
    """`None` if no event may follow."""
    breaks: e.Event
    moved: int = 0
    """By how much the place of the last entry is wrong."""

    @property
    def good(self) -> list[At]:
        return places(self.before if self.holds is None else [*self.before, self.holds])

    @property
    def bad(self) -> list[At]:
        last = At(len(self.before) + self.moved, self.breaks)
        return [*places(self.before), last]


def done(place: StepId) -> list[e.Event]:
    return [e.InvokeScheduled(place, "f"), e.InvokeStarted(place, 1), e.InvokeCompleted(place, 1)]


COMPLETED = e.ExecutionCompleted(released=1)
FAILED = e.ExecutionFailed(released=1)
CANCELLED = e.ExecutionCancelled(released=1)
RANDOM = e.RandomGenerated(B, 1)
SCHEDULED = e.InvokeScheduled(A, "f")
MEMBER = [STARTED, *done(A), e.JoinSetCreated(S), e.JoinSetSubmitted(S, A)]
DELIVERED = e.SignalDelivered("go", 1, payload=b"x")
WAIT = e.AwaitSignal("go", A)

CASES: dict[str, Case] = {
    "S-1 monotonic_sequence": Case([STARTED], RANDOM, RANDOM, moved=1),
    "S-2 starts_with_started": Case([], STARTED, RANDOM),
    "S-3 single_terminal": Case([STARTED, COMPLETED], None, FAILED),
    "S-4 terminal_is_last": Case([STARTED, COMPLETED], None, RANDOM),
    "S-5 cancelled_requires_requested": Case([STARTED], e.CancelRequested(), CANCELLED),
    "SE-1 started_requires_scheduled": Case(
        [STARTED, SCHEDULED], e.InvokeStarted(A, 1), e.InvokeStarted(B, 1)
    ),
    "SE-2 completed_requires_started": Case(
        [STARTED, SCHEDULED, e.InvokeScheduled(B, "f"), e.InvokeStarted(A, 1)],
        e.InvokeCompleted(A, 1),
        e.InvokeCompleted(B, 1),
    ),
    "SE-3 retrying_requires_started": Case(
        [STARTED, SCHEDULED, e.InvokeStarted(A, 1)],
        e.InvokeRetrying(A, 1, 5),
        e.InvokeRetrying(A, 2, 5),
    ),
    "SE-4 no_events_after_completed": Case(
        [STARTED, *done(A), e.InvokeScheduled(B, "f")],
        e.InvokeStarted(B, 1),
        e.InvokeStarted(A, 2),
    ),
    "CF-1 timer_fired_requires_scheduled": Case(
        [STARTED, e.TimerScheduled(A, 1, 2)], e.TimerFired(A), e.TimerFired(B)
    ),
    "CF-2 signal_received_requires_delivered": Case(
        [STARTED, DELIVERED],
        e.SignalReceived(A, "go", 1, payload=b"x"),
        e.SignalReceived(A, "stop", 1, payload=b"x"),
    ),
    "CF-3 signal_consumed_once": Case(
        [
            STARTED,
            DELIVERED,
            e.SignalDelivered("go", 2, payload=b"x"),
            e.SignalReceived(A, "go", 1, payload=b"x"),
        ],
        e.SignalReceived(B, "go", 2, payload=b"x"),
        e.SignalReceived(B, "go", 1, payload=b"x"),
    ),
    "CF-4 await_signal_consistent": Case(
        [STARTED],
        e.ExecutionAwaiting((A,), e.AwaitKind.SIGNAL, WAIT),
        e.ExecutionAwaiting((B,), e.AwaitKind.SIGNAL, WAIT),
    ),
    "JS-1 submit_requires_created": Case(
        [STARTED, SCHEDULED, e.JoinSetCreated(S)],
        e.JoinSetSubmitted(S, A),
        e.JoinSetSubmitted(T, A),
    ),
    "JS-2 no_submit_after_await": Case(
        [*MEMBER, e.JoinSetCreated(T), e.JoinSetAwaited(S, A), e.InvokeScheduled(B, "f")],
        e.JoinSetSubmitted(T, B),
        e.JoinSetSubmitted(S, B),
    ),
    # B is complete and S owes one result: nothing but the missing membership is wrong.
    "JS-3 awaited_requires_member": Case(
        [*MEMBER, *done(B)], e.JoinSetAwaited(S, A), e.JoinSetAwaited(S, B)
    ),
    "JS-4 awaited_requires_completed": Case(
        [*MEMBER, e.InvokeScheduled(B, "f"), e.JoinSetSubmitted(S, B)],
        e.JoinSetAwaited(S, A),
        e.JoinSetAwaited(S, B),
    ),
    # S has a second member, so the second result is within its bound.
    "JS-5 no_double_consume": Case(
        [*MEMBER, *done(B), e.JoinSetSubmitted(S, B), e.JoinSetAwaited(S, A)],
        e.JoinSetAwaited(S, B),
        e.JoinSetAwaited(S, A),
    ),
    "JS-7 promise_single_owner": Case(
        [*MEMBER, e.JoinSetCreated(T), e.InvokeScheduled(B, "f")],
        e.JoinSetSubmitted(T, B),
        e.JoinSetSubmitted(T, A),
    ),
}

IMPLIED = "JS-6 consume_bounded"


def names(journal: list[At]) -> list[str]:
    return [violation.name for violation in violations(journal)]


def broken_by_last(journal: list[At]) -> list[str]:
    """The violations that the incremental checker reports for the last entry."""
    state = State()
    for entry in journal[:-1]:
        apply_event(state, entry.event)
    seq, event = journal[-1]
    return [name for name, _ in checker.broken_by(state, len(journal) - 1, seq, event)]


def test_there_are_20_invariants_and_each_has_a_case() -> None:
    assert len(INVARIANTS) == 20
    assert {*CASES, IMPLIED} == set(INVARIANTS)


@pytest.mark.parametrize("name", CASES)
def test_a_valid_journal_breaks_no_invariant(name: str) -> None:
    assert names(CASES[name].good) == []


@pytest.mark.parametrize("name", CASES)
def test_checker_accepts_a_valid_journal(name: str) -> None:
    assert broken_by_last(CASES[name].good) == []


@pytest.mark.parametrize("name", CASES)
def test_a_broken_invariant_is_reported_by_its_name_alone(name: str) -> None:
    assert names(CASES[name].bad) == [name]


@pytest.mark.parametrize("name", CASES)
def test_checker_names_only_the_broken_invariant(name: str) -> None:
    assert broken_by_last(CASES[name].bad) == [name]


@pytest.mark.parametrize("name", CASES)
def test_report_names_the_entry_and_the_values(name: str) -> None:
    case = CASES[name]
    (violation,) = violations(case.bad)
    assert violation.seq == case.bad[-1].seq
    assert str(violation) == f"{name}: {violation.detail} (entry {violation.seq})"


# JS-6 counts: a set gives no more results than it has members. If every result is a member's (JS-3) and no member is
# consumed twice (JS-5), the count can't be exceeded; so JS-6 never breaks alone, only with one of those two.

DOUBLE_CONSUME = places([*MEMBER, e.JoinSetAwaited(S, A), e.JoinSetAwaited(S, A)])
NOT_A_MEMBER = places([*MEMBER, *done(B), e.JoinSetAwaited(S, A), e.JoinSetAwaited(S, B)])


def test_consume_bounded_holds() -> None:
    assert list(consume_bounded(DOUBLE_CONSUME[:-1])) == []


def test_consume_bounded_alone_reports_a_result_too_many() -> None:
    what = "set root.8 gives more results than it has members"
    assert list(consume_bounded(DOUBLE_CONSUME)) == [(len(DOUBLE_CONSUME) - 1, what)]


@pytest.mark.parametrize(
    ("journal", "with_it"),
    [(DOUBLE_CONSUME, "JS-5 no_double_consume"), (NOT_A_MEMBER, "JS-3 awaited_requires_member")],
)
def test_consume_bounded_breaks_together_with_what_implies_it(
    journal: list[At], with_it: str
) -> None:
    assert names(journal) == broken_by_last(journal) == [with_it, IMPLIED]


# Cases that the names leave open


def test_empty_journal_breaks_nothing() -> None:
    assert violations([]) == []


def test_approval_may_stand_before_the_start() -> None:
    assert names(places([e.RunApproved(), STARTED])) == []


def test_nothing_else_may_stand_between_approval_and_start() -> None:
    journal = places([e.RunApproved(), e.RunPaused()])
    assert names(journal) == broken_by_last(journal) == ["S-2 starts_with_started"]


def test_approval_of_a_run_that_began_does_not_take_its_start_back() -> None:
    journal = places([STARTED, e.RunApproved(), RANDOM])
    assert names(journal) == broken_by_last(journal) == []


@pytest.mark.parametrize("seq", [0, 3, 7])
def test_sequence_has_no_gap_and_no_repetition(seq: int) -> None:
    journal = [*places([STARTED]), At(seq, RANDOM)]
    assert names(journal) == broken_by_last(journal) == ["S-1 monotonic_sequence"]


def test_sequence_begins_at_0() -> None:
    journal = [At(1, STARTED)]
    assert names(journal) == broken_by_last(journal) == ["S-1 monotonic_sequence"]


def test_continuing_is_terminal() -> None:
    journal = places([STARTED, e.RunContinued(OTHER_RUN, released=1), RANDOM])
    assert names(journal) == broken_by_last(journal) == ["S-4 terminal_is_last"]


def test_retrying_is_refused_after_completion() -> None:
    journal = places([STARTED, *done(A), e.InvokeRetrying(A, 1, 5)])
    assert names(journal) == broken_by_last(journal) == ["SE-4 no_events_after_completed"]


@pytest.mark.parametrize("attempt", [-1, 0, 2])
def test_retry_of_an_attempt_that_did_not_start_is_reported(attempt: int) -> None:
    journal = places([STARTED, SCHEDULED, e.InvokeStarted(A, 1), e.InvokeRetrying(A, attempt, 5)])
    assert names(journal) == broken_by_last(journal) == ["SE-3 retrying_requires_started"]


def test_skipped_step_counts_as_completed_for_its_attempts() -> None:
    journal = places([STARTED, SCHEDULED, e.StepSkipped(A, "", 1), e.InvokeStarted(A, 1)])
    assert names(journal) == broken_by_last(journal) == ["SE-4 no_events_after_completed"]


def test_skipped_step_counts_as_completed_in_a_join_set() -> None:
    member = [SCHEDULED, e.JoinSetCreated(S), e.JoinSetSubmitted(S, A)]
    journal = places([STARTED, *member, e.StepSkipped(A, "", 1), e.JoinSetAwaited(S, A)])
    assert names(journal) == broken_by_last(journal) == []


def test_timer_that_fired_does_not_complete_an_invoke() -> None:
    member = [SCHEDULED, e.JoinSetCreated(S), e.JoinSetSubmitted(S, A)]
    journal = places(
        [STARTED, *member, e.TimerScheduled(A, 1, 2), e.TimerFired(A), e.JoinSetAwaited(S, A)]
    )
    assert names(journal) == broken_by_last(journal) == ["JS-4 awaited_requires_completed"]


@pytest.mark.parametrize("received", [b"y", b""])
def test_signal_is_received_with_the_payload_that_was_delivered(received: bytes) -> None:
    journal = places([STARTED, DELIVERED, e.SignalReceived(A, "go", 1, payload=received)])
    assert names(journal) == broken_by_last(journal) == ["CF-2 signal_received_requires_delivered"]


@pytest.mark.parametrize(("delivered", "received"), [(b"x", None), (None, b"x"), (None, None)])
def test_erased_signal_payload_is_not_compared(
    delivered: bytes | None, received: bytes | None
) -> None:
    journal = places(
        [
            STARTED,
            e.SignalDelivered("go", 1, payload=delivered),
            e.SignalReceived(A, "go", 1, payload=received),
        ]
    )
    assert names(journal) == broken_by_last(journal) == []


def test_same_delivery_id_of_another_name_is_another_delivery() -> None:
    journal = places(
        [
            STARTED,
            DELIVERED,
            e.SignalDelivered("stop", 1),
            e.SignalReceived(A, "go", 1),
            e.SignalReceived(B, "stop", 1),
        ]
    )
    assert names(journal) == broken_by_last(journal) == []


@pytest.mark.parametrize(
    "wait",
    [
        e.ExecutionAwaiting((A, B), e.AwaitKind.SIGNAL, WAIT),
        e.ExecutionAwaiting((), e.AwaitKind.SIGNAL, WAIT),
        e.ExecutionAwaiting((A,), e.AwaitKind.SIGNAL),
        e.ExecutionAwaiting((A,), e.AwaitKind.ANY, WAIT),
    ],
)
def test_signal_await_names_one_promise_and_only_its_kind_has_a_signal(
    wait: e.ExecutionAwaiting,
) -> None:
    journal = places([STARTED, wait])
    assert names(journal) == broken_by_last(journal) == ["CF-4 await_signal_consistent"]


def test_every_later_violation_is_reported_too() -> None:
    journal = places([STARTED, e.InvokeStarted(A, 1), e.InvokeStarted(B, 1)])
    assert [(v.name[:4], v.seq) for v in violations(journal)] == [("SE-1", 1), ("SE-1", 2)]


def test_entry_serves_as_a_recorded_event() -> None:
    recorded: list[Recorded] = [*started().entries]
    assert violations(recorded) == []
