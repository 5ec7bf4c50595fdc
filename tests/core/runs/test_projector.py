"""Snapshots: the rules of the run contract, and that it does not matter how the events come."""

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.core.codec import JsonCodec
from perdure.core.errors import InputError, InvalidId
from perdure.core.journal import events as e
from perdure.core.replay.identity import next_run_id
from perdure.core.runs.contract_event import ContractEvent
from perdure.core.runs.contract_reader import ContractReader, RunOrigin
from perdure.core.runs.projector import SnapshotProjector
from perdure.core.runs.snapshot import (
    ApplicationError,
    RunSnapshot,
    SequenceGap,
    SnapshotStatus,
    StepSnapshot,
    StepStatus,
)
from tests.core.journal.strategies import legal_journals
from tests.core.journal.writer import OTHER_RUN, RUN, STARTED, Writer, started, step, written
from tests.core.runs.histories import REF, failure, history_of
from tests.core.runs.projector_bugs import SkipsGaps

PROJECTOR = SnapshotProjector()
A, B = step(0), step(1)
PLAIN = e.InvokeScheduled(A, "charge")
PARKED = (PLAIN, e.InvokeStarted(A, 1), e.InvokeRetrying(A, 1, e.NEVER, payload=failure()))
RETRY = e.SignalAccepted("s1", e.ActType.RETRY_STEP, step=A)
FILE = e.ArtifactRef("s3://b/log", "log", "ab", 7, 9)
LOST = (PLAIN, e.InvokeStarted(A, 1), e.InvokeCompleted(A, 1, False, payload=failure()))

STATUSES = {
    "pending": {SnapshotStatus.PENDING},
    "approved": {SnapshotStatus.APPROVED},
    "running": {SnapshotStatus.RUNNING, SnapshotStatus.PAUSED},
    "blocked": {SnapshotStatus.RUNNING, SnapshotStatus.PAUSED},
    "paused": {SnapshotStatus.PAUSED},
    "cancelling": {SnapshotStatus.RUNNING},
    "completed": {SnapshotStatus.COMPLETED},
    "failed": {SnapshotStatus.FAILED},
    "cancelled": {SnapshotStatus.CANCELLED},
    "continued": {SnapshotStatus.RUNNING},
}


def projected(*events: e.Event) -> RunSnapshot:
    return PROJECTOR.project_run(RUN, history_of(started(*events)))


def step_after(*events: e.Event) -> StepSnapshot:
    found = projected(*events).step(A)
    assert found is not None
    return found


def in_pieces(
    projector: SnapshotProjector, events: Sequence[ContractEvent], cuts: Sequence[int]
) -> RunSnapshot:
    """Projected by projectors that are killed between the pieces and resume from the stored watermark.

    Each piece is read from its cut on, which may be before the watermark or behind it.
    """
    stored = msgspec.json.encode(projector.project_run(RUN, []))
    for cut in (*cuts, 0):
        snapshot = msgspec.json.decode(stored, type=RunSnapshot)
        later = [event for event in events if event.offset >= cut]
        stored = msgspec.json.encode(projector.incremental_project(snapshot, later[: cut + 3]))
        snapshot = msgspec.json.decode(stored, type=RunSnapshot)
        rest = [event for event in events if event.offset > snapshot.last_event_seq]
        stored = msgspec.json.encode(projector.incremental_project(snapshot, rest[:2]))
    snapshot = msgspec.json.decode(stored, type=RunSnapshot)
    return projector.incremental_project(snapshot, events)


@settings(max_examples=150, deadline=None)
@given(legal_journals(), st.lists(st.integers(0, 30), max_size=4))
def test_one_go_pieces_twice_and_killed_in_between_give_the_same_snapshot(
    writer: Writer, cuts: list[int]
) -> None:
    events = history_of(writer)
    whole = PROJECTOR.project_run(RUN, events)
    assert in_pieces(PROJECTOR, events, cuts) == whole
    assert PROJECTOR.incremental_project(whole, events) == whole
    assert (
        PROJECTOR.project_run(RUN, [each for event in events for each in (event, event)]) == whole
    )
    assert whole.last_event_seq == len(events) - 1


@settings(max_examples=100, deadline=None)
@given(legal_journals())
def test_the_snapshot_agrees_with_the_state_of_the_run(writer: Writer) -> None:
    snapshot, state = PROJECTOR.project_run(RUN, history_of(writer)), writer.state
    assert snapshot.status in STATUSES[state.status.value]
    if not state.is_terminal:
        assert (snapshot.status is SnapshotStatus.PAUSED) == state.paused
    steps = {each.step: each for each in snapshot.steps}
    for place in state.scheduled:
        # A guard alone lets a settled step be retried; no owner does that.
        if place in state.completed and place not in state.logical_attempts:
            assert steps[place].status not in (StepStatus.PENDING, StepStatus.RUNNING)
        assert steps[place].logical_attempt == state.logical_attempts.get(place, 1)
    failed = [each for each in snapshot.steps if each.status is StepStatus.FAILED]
    assert snapshot.failed_steps == len(failed)


def test_the_seeded_bug_of_a_skipped_gap_is_caught() -> None:
    events = history_of(started(*LOST, e.ExecutionFailed(released=1, payload=failure())))
    whole = PROJECTOR.project_run(RUN, events)
    for cut in range(1, len(events) - 2):
        assert in_pieces(PROJECTOR, events, [cut]) == whole
    caught = [
        cut for cut in range(1, len(events) - 2) if in_pieces(SkipsGaps(), events, [cut]) != whole
    ]
    assert caught


@pytest.mark.parametrize(
    ("events", "status"),
    [
        ((), SnapshotStatus.PENDING),
        ((e.RunApproved(),), SnapshotStatus.APPROVED),
        ((e.RunApproved(), STARTED), SnapshotStatus.RUNNING),
        ((STARTED, e.RunPaused()), SnapshotStatus.PAUSED),
        ((STARTED, e.RunPaused(), e.RunResumed()), SnapshotStatus.RUNNING),
        ((STARTED, e.RunPaused(), e.CancelRequested()), SnapshotStatus.RUNNING),
        ((STARTED, e.SignalAccepted("s", "PAUSE")), SnapshotStatus.RUNNING),
        ((STARTED, e.ExecutionCompleted(released=1)), SnapshotStatus.COMPLETED),
        ((STARTED, e.ExecutionFailed(released=1)), SnapshotStatus.FAILED),
        (
            (STARTED, e.CancelRequested(), e.ExecutionCancelled(released=1)),
            SnapshotStatus.CANCELLED,
        ),
    ],
)
def test_status_of_the_run(events: tuple[e.Event, ...], status: SnapshotStatus) -> None:
    assert PROJECTOR.project_run(RUN, history_of(written(*events))).status is status


@pytest.mark.parametrize(
    ("events", "status"),
    [
        ((PLAIN,), StepStatus.PENDING),
        ((PLAIN, e.InvokeStarted(A, 1)), StepStatus.RUNNING),
        ((PLAIN, e.InvokeStarted(A, 1), e.InvokeRetrying(A, 1, 5)), StepStatus.RUNNING),
        ((PLAIN, e.InvokeStarted(A, 1), e.InvokeCompleted(A, 1)), StepStatus.SUCCESS),
        (LOST, StepStatus.FAILED),
        (PARKED, StepStatus.FAILED),
        ((*PARKED, RETRY), StepStatus.PENDING),
        ((*PARKED, RETRY, e.InvokeStarted(A, 2)), StepStatus.RUNNING),
        ((*PARKED, e.StepSkipped(A, "known", 1, "s2")), StepStatus.SKIPPED),
        ((*PARKED, e.InvokeCompleted(A, 1, False)), StepStatus.FAILED),
        ((*PARKED, e.InvokeStarted(A, 2), e.InvokeCompleted(A, 2, False)), StepStatus.FAILED),
        ((PLAIN, e.StepSkipped(A, "cancelled", 1)), StepStatus.SKIPPED),
        ((e.TimerScheduled(A, 1, 2),), StepStatus.RUNNING),
        ((e.TimerScheduled(A, 1, 2), e.TimerFired(A)), StepStatus.SUCCESS),
        (
            (e.ExecutionAwaiting((A,), e.AwaitKind.SIGNAL, e.AwaitSignal("go", A)),),
            StepStatus.RUNNING,
        ),
        ((e.SignalDelivered("go", 1), e.SignalReceived(A, "go", 1)), StepStatus.SUCCESS),
    ],
)
def test_status_of_a_step(events: tuple[e.Event, ...], status: StepStatus) -> None:
    assert step_after(*events).status is status


def test_a_step_has_name_attempts_times_artifacts_and_error() -> None:
    done = step_after(
        PLAIN,
        e.InvokeStarted(A, 1),
        e.InvokeStarted(A, 2),
        e.InvokeCompleted(A, 2, artifacts=(FILE,)),
    )
    assert (done.name, done.kind, done.run_id) == ("charge", "function", RUN)
    assert (done.logical_attempt, done.engine_attempt) == (1, 2)
    assert (done.started_at_ms, done.completed_at_ms) == (1000, 1000)
    assert done.artifacts == (FILE,)
    failed = step_after(*LOST).error
    assert failed is not None
    assert (failed.code, failed.message, failed.retryable) == ("ValueError", "no", False)


def test_a_retry_begins_the_next_logical_attempt_and_clears_the_error() -> None:
    before = projected(*PARKED)
    after = projected(*PARKED, RETRY, e.InvokeStarted(A, 2), e.InvokeCompleted(A, 2))
    assert (before.failed_steps, after.failed_steps) == (1, 0)
    (found,) = after.steps
    assert (found.logical_attempt, found.engine_attempt, found.error) == (2, 2, None)


@pytest.mark.parametrize(
    ("after", "is_parked"),
    [
        ((), True),
        ((RETRY,), False),
        ((e.StepSkipped(A, "known", 1, "s2"),), False),
        ((e.InvokeCompleted(A, 1, False),), False),
    ],
)
def test_a_step_is_parked_until_an_operator_or_the_end_of_its_run_settles_it(
    after: tuple[e.Event, ...], is_parked: bool
) -> None:
    assert step_after(*PARKED, *after).is_parked is is_parked


def test_artifacts_of_all_steps_are_those_of_the_run() -> None:
    other = e.ArtifactRef("s3://b/other", "log")
    snapshot = projected(
        *(PLAIN, e.InvokeStarted(A, 1), e.InvokeCompleted(A, 1, artifacts=(FILE,))),
        *(e.InvokeScheduled(B, "f"), e.InvokeStarted(B, 1)),
        e.InvokeCompleted(B, 1, artifacts=(FILE, other)),
        e.ExecutionCompleted(released=1),
    )
    assert snapshot.artifacts == (FILE, other)


def test_the_root_cause_is_the_first_failed_step_with_the_error_of_the_run() -> None:
    snapshot = projected(
        *LOST,
        *(e.InvokeScheduled(B, "f"), e.InvokeStarted(B, 1)),
        e.InvokeCompleted(B, 1, False, payload=failure("KeyError", "k")),
        e.ExecutionFailed(released=1, payload=failure("KeyError", "k")),
    )
    assert snapshot.root_cause is not None
    assert (snapshot.root_cause.step, snapshot.root_cause.error.code) == (B, "KeyError")
    assert snapshot.failed_steps == 2
    assert snapshot.error is not None
    assert snapshot.error.message == "k"


def test_an_error_of_the_program_itself_has_no_step() -> None:
    snapshot = projected(*LOST, e.ExecutionFailed(released=1, payload=failure("TypeError", "x")))
    assert snapshot.root_cause is not None
    assert (snapshot.root_cause.step, snapshot.root_cause.error.code) == (None, "TypeError")


def test_times_and_duration_are_those_of_first_and_last_event() -> None:
    events = history_of(started(e.ExecutionCompleted(released=1)))
    events[1] = msgspec.structs.replace(events[1], emitted_at_ms=3500)
    snapshot = PROJECTOR.project_run(RUN, events)
    times = snapshot.started_at_ms, snapshot.completed_at_ms, snapshot.total_duration_ms
    assert times == (1000, 3500, 2500)
    assert snapshot.engine_run_ref == REF
    assert snapshot.is_over


def test_a_gap_halts_and_the_projection_continues_when_it_closes() -> None:
    events = history_of(started(*LOST, e.ExecutionFailed(released=1)))
    halted = PROJECTOR.project_run(RUN, [*events[:2], *events[3:]])
    assert (halted.last_event_seq, halted.gap) == (1, SequenceGap(2, 3))
    assert halted.is_stale
    assert halted.status is SnapshotStatus.RUNNING
    again = PROJECTOR.incremental_project(halted, events[4:])
    assert (again.last_event_seq, again.gap) == (1, SequenceGap(2, 4))
    closed = PROJECTOR.incremental_project(again, events[2:])
    assert closed == PROJECTOR.project_run(RUN, events)
    assert not closed.is_stale


@pytest.mark.parametrize(
    ("last", "following", "missing"), [(-1, 0, False), (-1, 1, True), (9, 10, False), (9, 12, True)]
)
def test_gaps_are_detected(last: int, following: int, missing: bool) -> None:
    assert PROJECTOR.detect_gaps(last, following) is missing


def test_a_projection_leaves_the_snapshot_that_it_began_with_unchanged() -> None:
    events = history_of(started(*LOST))
    before = PROJECTOR.project_run(RUN, events[:3])
    copy = msgspec.json.encode(before)
    after = PROJECTOR.incremental_project(before, events)
    assert after is not before
    assert msgspec.json.encode(before) == copy
    with pytest.raises(AttributeError):
        before.status = SnapshotStatus.FAILED  # type: ignore[misc]


def test_a_chain_projects_as_one() -> None:
    events = history_of(started(*LOST, e.RunContinued(next_run_id(RUN), released=1)))
    following = Writer(next_run_id(RUN))
    following.append(
        msgspec.structs.replace(STARTED, continues=RUN),
        *(PLAIN, e.InvokeStarted(A, 1), e.InvokeCompleted(A, 1)),
        e.ExecutionCompleted(released=1),
    )
    origin = RunOrigin(next_run_id(RUN), REF, len(events), RUN, len(events))
    reader = ContractReader(origin, JsonCodec())
    snapshot = PROJECTOR.project_run(RUN, [*events, *map(reader.read, following.entries)])
    assert (snapshot.run_id, snapshot.current_run_id) == (RUN, next_run_id(RUN))
    assert snapshot.status is SnapshotStatus.COMPLETED
    assert [(each.run_id, each.step, each.status.value) for each in snapshot.steps] == [
        (RUN, A, "FAILED"),
        (next_run_id(RUN), A, "SUCCESS"),
    ]
    assert snapshot.last_event_seq == len(events) + 4
    found = snapshot.step(A)
    assert found is not None
    assert found.run_id == next_run_id(RUN)


def test_events_of_another_run_are_refused() -> None:
    snapshot = projected(PLAIN)
    other = Writer(OTHER_RUN)
    other.append(STARTED, PLAIN, e.InvokeStarted(A, 1))
    reader = ContractReader(RunOrigin(OTHER_RUN, REF), JsonCodec())
    events = [reader.read(entry) for entry in other.entries]
    with pytest.raises(InputError, match="is applied to a snapshot of"):
        PROJECTOR.incremental_project(snapshot, events)
    with pytest.raises(InvalidId):
        PROJECTOR.project_run("nonsense", [])


def test_a_snapshot_has_a_short_repr_and_an_error_compares_by_its_fields() -> None:
    snapshot = projected(*LOST)
    assert repr(snapshot) == f"<RunSnapshot {RUN} RUNNING at 3: 1 steps, 1 failed>"
    assert ApplicationError("a", "b") == ApplicationError("a", "b", False, "")
