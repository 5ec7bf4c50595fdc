from collections import Counter

import pytest
from hypothesis import given, settings

from perdure.core.errors import (
    AttemptsExhausted,
    LedgerDecrement,
    LedgerOrder,
    PerdureError,
    SemaphoreUnderflow,
)
from perdure.core.ids import Guid, StepId, message_guid
from perdure.core.journal import events as e
from perdure.core.journal.postings import effect_of
from perdure.core.ledger import ATTEMPT, AccountId, step_account
from tests.core.journal.strategies import legal_journals
from tests.core.journal.writer import (
    OTHER_RUN,
    RUN,
    STARTED,
    Writer,
    join_set,
    snapshot,
    started,
    step,
)

A = step(1)
GUID = Guid("m1")

Row = tuple[e.Event, dict[str, int], int]
"""An event, its increment to each account, and its change to the semaphore."""

GOLDEN: list[Row] = [
    (STARTED, {}, 1),
    (
        e.ExecutionStarted("p", "d", "r", trigger=StepId("t"), guid=GUID),
        {"step:t": 101_100_000_000_001, "message:m1": 10_000_000_000},
        1,
    ),
    (e.ExecutionCompleted(released=1), {}, -1),
    (
        e.ExecutionCompleted(released=0, guid=GUID, step=A),
        {"message:m1": 100_000_000, "step:root.1": 200_000_000_000_000},
        0,
    ),
    (e.ExecutionFailed(released=3), {}, -3),
    (e.ExecutionFailed(released=1, guid=GUID), {"message:m1": 100_000_000}, -1),
    (e.CancelRequested(), {}, 0),
    (e.CancelRequested(guid=GUID), {"message:m1": 11_000_000_001}, 0),
    (e.ExecutionCancelled(released=2), {}, -2),
    (e.InvokeScheduled(A, "f"), {"step:root.1": 1_100_000_000_000}, 1),
    (e.InvokeScheduled(A, "f", staged=True), {"step:root.1": 100_000_000_000}, 0),
    (e.InvokeStarted(A, 1), {}, 0),
    (e.InvokeCompleted(A, 1), {"step:root.1": 1}, -1),
    (e.InvokeCompleted(A, 1, ok=False), {"step:root.1": 1}, -1),
    (
        e.InvokeCompleted(A, 1, guid=GUID),
        {"step:root.1": 1, "message:m1": 11_000_000_001},
        -1,
    ),
    (e.InvokeCompleted(A, 1, guid=GUID, staged=True), {"message:m1": 10_000_000_000}, 0),
    (e.InvokeRetrying(A, 1, 5), {}, 0),
    (e.RandomGenerated(A, 1), {}, 0),
    (e.TimeRecorded(A, 1), {}, 0),
    (e.TimerScheduled(A, 1, 2), {"step:root.1": 1_100_000_000_000}, 1),
    (e.TimerScheduled(A, 1, 2, staged=True), {"step:root.1": 100_000_000_000}, 0),
    (e.TimerFired(A), {"step:root.1": 1}, -1),
    (e.TimerFired(A, GUID), {"step:root.1": 1, "message:m1": 11_000_000_001}, -1),
    (e.TimerFired(A, GUID, staged=True), {"message:m1": 10_000_000_000}, 0),
    (e.SignalDelivered("go", 7), {}, 0),
    (e.SignalDelivered("go", 7, GUID), {"message:m1": 11_000_000_007}, 0),
    (e.SignalReceived(A, "go", 7), {"step:root.1": 1_100_000_000_001}, 0),
    (e.ExecutionAwaiting((A,)), {}, 0),
    (e.ExecutionResumed(), {}, 0),
    (e.JoinSetCreated(join_set(2)), {}, 0),
    (e.JoinSetSubmitted(join_set(2), A), {}, 0),
    (e.JoinSetAwaited(join_set(2), A), {}, 0),
    (e.RunApproved(), {}, 0),
    (e.RunPaused(), {}, 0),
    (e.RunResumed(), {}, 0),
    (e.StepSkipped(A), {}, 0),
    (e.StepSkipped(A, released=1), {"step:root.1": 1}, -1),
    (e.SignalAccepted("s", "PAUSE"), {}, 0),
    (e.SignalRejected("s", "PAUSE"), {}, 0),
    (e.SignalAccepted("s", "PAUSE", guid=GUID), {"message:m1": 11_000_000_001}, 0),
    (e.SignalRejected("s", "PAUSE", guid=GUID), {"message:m1": 11_000_000_001}, 0),
    (e.StepSkipped(A, guid=GUID, staged=True), {"message:m1": 10_000_000_000}, 0),
    (e.RunContinued(OTHER_RUN, released=1), {}, -1),
    (
        e.Posted(
            "spawn", (e.Posting(AccountId("step:a"), 5), e.Posting(AccountId("message:b"), 6)), 2
        ),
        {"step:a": 5, "message:b": 6},
        2,
    ),
]


@pytest.mark.parametrize(
    ("event", "postings", "delta"),
    [pytest.param(*row, id=f"{n} {type(row[0]).__name__}") for n, row in enumerate(GOLDEN)],
)
def test_event_posts(event: e.Event, postings: dict[str, int], delta: int) -> None:
    posted, changed = effect_of(event)
    assert dict(posted) == postings
    assert len(posted) == len(postings)
    assert changed == delta


def test_every_event_is_in_the_golden_table() -> None:
    assert {type(event) for event, _, _ in GOLDEN} == set(e.EVENTS)


# The books of whole journals


def open_obligations(writer: Writer) -> int:
    """The program itself, and every invoke and timer that is not over."""
    state = writer.state
    steps = {*state.scheduled, *state.timers}
    return int(bool(writer.entries)) + len(steps - set(state.completed))


@settings(max_examples=150, deadline=None)
@given(legal_journals())
def test_semaphore_counts_the_program_and_its_open_steps_at_every_point(writer: Writer) -> None:
    again = Writer()
    for event in writer.events:
        again.append(event)
        if isinstance(event, e.RunApproved) or again.state.is_terminal:
            assert again.state.semaphore == 0
        else:
            assert again.state.semaphore == open_obligations(again)


@settings(max_examples=150, deadline=None)
@given(legal_journals())
def test_effects_of_all_events_sum_to_the_balances_and_the_semaphore(writer: Writer) -> None:
    balances: Counter[str] = Counter()
    semaphore = 0
    for event in writer.events:
        postings, delta = effect_of(event)
        semaphore += delta
        for account, increment in postings:
            balances[account] += increment
    assert (balances, semaphore) == (writer.state.balances, writer.state.semaphore)


@settings(max_examples=100, deadline=None)
@given(legal_journals())
def test_an_append_returns_exactly_what_it_changed(writer: Writer) -> None:
    whole = Writer()
    appended = whole.append(*writer.events)
    assert appended.postings == whole.state.balances
    assert (appended.semaphore_before, appended.semaphore_after) == (0, whole.state.semaphore)
    assert (appended.seq_before, appended.seq_after) == (0, whole.journal.seq)
    assert (appended.status, appended.head) == (whole.state.status, whole.journal.head)
    assert appended.run_id == RUN


@pytest.mark.parametrize(
    "end",
    [
        (e.ExecutionFailed(released=3),),
        (e.CancelRequested(), e.ExecutionCancelled(released=3)),
        (e.StepSkipped(step(0), "", 1), e.TimerFired(step(1)), e.ExecutionCompleted(released=1)),
        (
            e.StepSkipped(step(0), "", 1),
            e.TimerFired(step(1)),
            e.RunContinued(OTHER_RUN, released=1),
        ),
    ],
)
def test_terminal_entry_brings_the_semaphore_to_0(end: tuple[e.Event, ...]) -> None:
    writer = started(e.InvokeScheduled(step(0), "f"), e.TimerScheduled(step(1), 1, 2))
    assert writer.state.semaphore == 3
    assert writer.append(*end).semaphore_after == 0


# Digits that the ledger refuses


def attempt(place: StepId) -> e.Posted:
    return e.Posted("attempt", (e.Posting(step_account(place), ATTEMPT),))


def test_hundredth_entry_attempt_is_refused_and_changes_nothing() -> None:
    writer = started(*[attempt(A)] * 99)
    then = snapshot(writer.journal)
    with pytest.raises(AttemptsExhausted) as refused:
        writer.append(e.RandomGenerated(step(2), 1), attempt(A))
    assert str(refused.value) == (
        f"entry attempts exhausted (99 of 99) for step 'root.1' of run '{RUN}': "
        f"see engine.handle('{RUN}').describe()"
    )
    assert snapshot(writer.journal) == then


def test_refused_digit_takes_back_those_posted_with_it() -> None:
    writer = started()
    then = snapshot(writer.journal)
    both = (e.Posting(step_account(A), ATTEMPT), e.Posting(step_account(step(2)), 1))
    with pytest.raises(LedgerOrder, match=r"step 'root\.2' of run"):
        writer.append(e.Posted("two", both))
    assert snapshot(writer.journal) == then


def test_second_posting_of_a_message_marker_is_refused() -> None:
    guid = message_guid(RUN, "result", "root.1", "1")
    steps = (e.TimerScheduled(step(1), 1, 2), e.TimerScheduled(step(2), 1, 2))
    writer = started(*steps, e.TimerFired(step(1), guid))
    then = snapshot(writer.journal)
    with pytest.raises(LedgerOrder, match=f"message '{guid}' of run"):
        writer.append(e.TimerFired(step(2), guid))
    assert snapshot(writer.journal) == then


@pytest.mark.parametrize(
    ("event", "error"),
    [
        (e.Posted("x", (), -2), SemaphoreUnderflow),
        (e.Posted("x", (e.Posting(step_account(A), -1),)), LedgerDecrement),
        (e.Posted("x", (e.Posting(AccountId("nobody"), 1),)), PerdureError),
    ],
)
def test_impossible_posting_is_refused(event: e.Event, error: type[PerdureError]) -> None:
    writer = started()
    then = snapshot(writer.journal)
    with pytest.raises(error):
        writer.append(event)
    assert snapshot(writer.journal) == then


def test_staged_step_posts_in_the_end_what_a_whole_step_posts() -> None:
    guid = message_guid(RUN, "result")
    whole = started(
        e.InvokeScheduled(A, "f"), e.InvokeStarted(A, 1), e.InvokeCompleted(A, 1, guid=guid)
    )
    message = AccountId(f"message:{guid}")
    staged = started(
        e.Posted("attempt", (e.Posting(step_account(A), ATTEMPT),), 1),
        e.InvokeScheduled(A, "f", staged=True),
        e.InvokeStarted(A, 1),
        e.Posted("entry", (e.Posting(step_account(A), 1), e.Posting(message, 1))),
        e.InvokeCompleted(A, 1, guid=guid, staged=True),
        e.Posted("spawn", (e.Posting(message, 1_000_000_000),), -1),
    )
    assert staged.state.balances == whole.state.balances
    assert staged.state.semaphore == whole.state.semaphore
