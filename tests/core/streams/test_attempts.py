"""Which attempts count, by the journal."""

import pytest

from perdure.core.ids import StepId
from perdure.core.journal import events as e
from perdure.core.replay.doubt import Resolution, doubt_entry
from perdure.core.streams.attempts import Attempts
from perdure.core.streams.chunks import ROOT, ChunkOrigin, ChunkState

STEP = StepId("root.0")
OTHER = StepId("root.1")

STARTED = e.InvokeStarted(STEP, 1)
AGAIN = e.InvokeStarted(STEP, 2)
DOUBTED = doubt_entry(STEP, 1, Resolution.RETRY)
OVER = e.ExecutionFailed(released=2)

PENDING, COMPLETED, ABANDONED = ChunkState


def reported(*events: e.Event) -> Attempts:
    attempts = Attempts()
    for event in events:
        attempts.learn(event)
    return attempts


JOURNALS: dict[str, tuple[tuple[e.Event, ...], ChunkState, ChunkState]] = {
    # The states of the first attempt and of the second.
    "nothing": ((), PENDING, PENDING),
    "started": ((STARTED,), PENDING, PENDING),
    "completed": ((STARTED, e.InvokeCompleted(STEP, 1)), COMPLETED, ABANDONED),
    "failed for good": ((STARTED, e.InvokeCompleted(STEP, 1, False)), ABANDONED, ABANDONED),
    "retrying": ((STARTED, e.InvokeRetrying(STEP, 1, 0)), ABANDONED, PENDING),
    "retrying, queued": ((e.InvokeRetrying(STEP, 1, 0),), ABANDONED, PENDING),
    "in doubt": ((STARTED, DOUBTED), ABANDONED, PENDING),
    "in doubt twice": ((STARTED, DOUBTED, AGAIN, DOUBTED), ABANDONED, ABANDONED),
    "begun again": ((STARTED, AGAIN), ABANDONED, PENDING),
    "completed at last": ((STARTED, AGAIN, e.InvokeCompleted(STEP, 2)), ABANDONED, COMPLETED),
    "skipped": ((e.StepSkipped(STEP, "cancelled", 1),), ABANDONED, ABANDONED),
    "run over": ((STARTED, OVER), ABANDONED, ABANDONED),
    "over after it": ((STARTED, e.InvokeCompleted(STEP, 1), OVER), COMPLETED, ABANDONED),
    "another step": ((STARTED, e.InvokeCompleted(OTHER, 1)), PENDING, PENDING),
    "other digits": ((STARTED, e.Posted("spawn", DOUBTED.postings)), PENDING, PENDING),
}


@pytest.mark.parametrize("name", JOURNALS)
def test_the_state_of_an_attempt_follows_from_the_journal(name: str) -> None:
    events, first, second = JOURNALS[name]
    attempts = reported(*events)
    assert attempts.state_of(ChunkOrigin(STEP, 1)) is first
    assert attempts.state_of(ChunkOrigin(STEP, 2)) is second


@pytest.mark.parametrize(
    "end",
    [
        e.ExecutionCompleted(released=1),
        OVER,
        e.ExecutionCancelled(released=1),
        e.RunContinued(released=1, next_run=ROOT.step),  # type: ignore[arg-type]
    ],
)
def test_every_end_of_a_run_abandons_open_attempts(end: e.Terminal) -> None:
    attempts = reported(STARTED, end)
    assert attempts.is_over
    assert attempts.state_of(ChunkOrigin(STEP)) is ABANDONED


def test_chunks_of_the_workflow_itself_count_at_once() -> None:
    for events in ((), (OVER,)):
        assert reported(*events).state_of(ROOT) is COMPLETED


def test_only_the_claim_that_brought_the_outcome_counts() -> None:
    attempts = reported(STARTED, e.InvokeCompleted(STEP, 1, claim=2))
    states = [attempts.state_of(ChunkOrigin(STEP, 1, claim)) for claim in (1, 2, 3)]
    assert states == [ABANDONED, COMPLETED, ABANDONED]


def test_a_claim_is_abandoned_when_a_later_one_appends() -> None:
    attempts = Attempts()
    attempts.see(ChunkOrigin(STEP, 1, 2))
    attempts.see(ChunkOrigin(STEP, 1, 1))
    states = [attempts.state_of(ChunkOrigin(STEP, 1, claim)) for claim in (1, 2, 3)]
    assert states == [ABANDONED, PENDING, PENDING]
    assert attempts.state_of(ChunkOrigin(STEP, 2, 1)) is PENDING
