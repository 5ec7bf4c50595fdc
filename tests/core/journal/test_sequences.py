"""Three complete runs, event by event: state and semaphore after each."""

import pytest

from perdure.core.journal import events as e
from perdure.core.journal.invariants import violations
from perdure.core.journal.state import Status, fold
from tests.core.journal.writer import STARTED, Writer, join_set, step

RUNNING, BLOCKED, COMPLETED = Status.RUNNING, Status.BLOCKED, Status.COMPLETED

Row = tuple[e.Event, Status, int]
"""An event, and the status and the open obligations after it."""

FULL: list[Row] = [
    (STARTED, RUNNING, 1),
    (e.RandomGenerated(step(0), 0x1A2B), RUNNING, 1),
    (e.InvokeScheduled(step(1), "fetch_user", payload=b'{"id":42}'), RUNNING, 2),
    (e.ExecutionAwaiting((step(1),)), BLOCKED, 2),
    (e.InvokeStarted(step(1), 1), BLOCKED, 2),
    (e.InvokeCompleted(step(1), 1, payload=b'{"name":"Ada"}'), BLOCKED, 1),
    (e.ExecutionResumed(), RUNNING, 1),
    (e.JoinSetCreated(join_set(2)), RUNNING, 1),
    (e.InvokeScheduled(step(3), "send_email", payload=b"{}"), RUNNING, 2),
    (e.JoinSetSubmitted(join_set(2), step(3)), RUNNING, 2),
    (e.InvokeScheduled(step(4), "send_sms", payload=b"{}"), RUNNING, 3),
    (e.JoinSetSubmitted(join_set(2), step(4)), RUNNING, 3),
    (e.ExecutionAwaiting((step(3), step(4)), e.AwaitKind.ANY), BLOCKED, 3),
    (e.InvokeStarted(step(4), 1), BLOCKED, 3),
    (e.InvokeCompleted(step(4), 1, payload=b"true"), BLOCKED, 2),
    (e.ExecutionResumed(), RUNNING, 2),
    (e.JoinSetAwaited(join_set(2), step(4)), RUNNING, 2),
    (e.ExecutionAwaiting((step(3),), e.AwaitKind.ANY), BLOCKED, 2),
    (e.InvokeStarted(step(3), 1), BLOCKED, 2),
    (e.InvokeRetrying(step(3), 1, 5_000, payload=b'"timeout"'), BLOCKED, 2),
    (e.InvokeStarted(step(3), 2), BLOCKED, 2),
    (e.InvokeCompleted(step(3), 2, payload=b"true"), BLOCKED, 1),
    (e.ExecutionResumed(), RUNNING, 1),
    (e.JoinSetAwaited(join_set(2), step(3)), RUNNING, 1),
    (e.ExecutionCompleted(released=1, payload=b'"done"'), COMPLETED, 0),
]

ORDER_CREATED: list[Row] = [
    (STARTED, RUNNING, 1),
    (e.InvokeScheduled(step(0), "create_order", payload=b"{}"), RUNNING, 2),
    (e.ExecutionAwaiting((step(0),)), BLOCKED, 2),
    (e.InvokeStarted(step(0), 1), BLOCKED, 2),
    (e.InvokeCompleted(step(0), 1, payload=b'{"order":1}'), BLOCKED, 1),
    (e.ExecutionResumed(), RUNNING, 1),
]

APPROVED = b'{"approved":true}'
DELIVERED = e.SignalDelivered("user_approval", 1, payload=APPROVED)
RECEIVED = e.SignalReceived(step(1), "user_approval", 1, payload=APPROVED)
AWAIT_APPROVAL = e.ExecutionAwaiting(
    (step(1),), e.AwaitKind.SIGNAL, e.AwaitSignal("user_approval", step(1))
)

BUFFERED_SIGNAL: list[Row] = [
    *ORDER_CREATED,
    (DELIVERED, RUNNING, 1),
    (RECEIVED, RUNNING, 1),
    (e.ExecutionCompleted(released=1, payload=b'"ok"'), COMPLETED, 0),
]

BLOCKING_SIGNAL: list[Row] = [
    *ORDER_CREATED,
    (AWAIT_APPROVAL, BLOCKED, 1),
    (DELIVERED, BLOCKED, 1),
    (RECEIVED, BLOCKED, 1),
    (e.ExecutionResumed(), RUNNING, 1),
    (e.ExecutionCompleted(released=1, payload=b'"ok"'), COMPLETED, 0),
]

SEQUENCES = pytest.mark.parametrize(
    ("rows", "length"),
    [
        pytest.param(FULL, 25, id="invoke, random value and join set"),
        pytest.param(BUFFERED_SIGNAL, 9, id="signal before its await"),
        pytest.param(BLOCKING_SIGNAL, 11, id="signal after its await"),
    ],
)


@SEQUENCES
def test_state_and_semaphore_after_each_event(rows: list[Row], length: int) -> None:
    writer = Writer()
    seen = []
    for event, _, _ in rows:
        appended = writer.append(event)
        assert (appended.status, appended.semaphore_after) == (
            writer.state.status,
            writer.state.semaphore,
        )
        seen.append((event, writer.state.status, writer.state.semaphore))
    assert seen == rows
    assert writer.journal.seq == length


@SEQUENCES
def test_no_invariant_is_broken_at_any_point(rows: list[Row], length: int) -> None:
    writer = Writer()
    for event, _, _ in rows:
        writer.append(event)
        assert violations(writer.entries) == []


@SEQUENCES
def test_appending_at_once_gives_the_same_journal(rows: list[Row], length: int) -> None:
    whole, parts = Writer(), Writer()
    whole.append(*(event for event, _, _ in rows))
    for event, _, _ in rows:
        parts.append(event)
    assert whole.entries == parts.entries


@SEQUENCES
def test_status_is_a_fold_of_the_events(rows: list[Row], length: int) -> None:
    events = [event for event, _, _ in rows]
    folded = [fold(events[: end + 1]).status for end in range(length)]
    assert folded == [status for _, status, _ in rows]


def test_blocked_run_knows_what_it_waits_for() -> None:
    writer = Writer()
    writer.append(*(event for event, _, _ in BLOCKING_SIGNAL[:7]))
    assert writer.state.wait == AWAIT_APPROVAL
