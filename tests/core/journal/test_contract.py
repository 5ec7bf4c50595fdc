import hashlib
import re

import pytest
from hypothesis import given, settings

from perdure.core.journal import events as e
from perdure.core.journal.contract import (
    TERMINAL_OF_STEP,
    Labelling,
    contract_name,
    idempotency_key,
    keys,
    step_of,
)
from tests.core.journal.specimens import SPECIMENS
from tests.core.journal.strategies import legal_journals
from tests.core.journal.writer import OTHER_RUN, RUN, STARTED, Writer, join_set, started, step

A = step(0)

RENAMED = {
    "ExecutionStarted": "RunStarted",
    "ExecutionCompleted": "RunCompleted",
    "ExecutionFailed": "RunFailed",
    "ExecutionCancelled": "RunCancelled",
    "InvokeStarted": "StepStarted",
    "InvokeCompleted": "StepFailed",  # the specimen is a failed one
}

CONTRACT = {
    "RunApproved",
    "RunStarted",
    "StepStarted",
    "StepCompleted",
    "StepFailed",
    "StepSkipped",
    "SignalAccepted",
    "SignalRejected",
    "RunPaused",
    "RunResumed",
    "RunCompleted",
    "RunFailed",
    "RunCancelled",
}


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def keys_of(writer: Writer, version: str = "v7") -> list[str]:
    return list(keys(RUN, version, writer.entries))


@pytest.mark.parametrize("event", [event for event, _ in SPECIMENS])
def test_contract_name_of_each_event(event: e.Event) -> None:
    own = type(event).__name__
    assert contract_name(event) == RENAMED.get(own, own)


def test_completed_step_that_succeeded_is_step_completed() -> None:
    assert contract_name(e.InvokeCompleted(A, 1)) == "StepCompleted"


def test_every_name_of_the_contract_is_reached() -> None:
    named = {contract_name(event) for event, _ in SPECIMENS}
    assert {*named, contract_name(e.InvokeCompleted(A, 1))} >= CONTRACT


@pytest.mark.parametrize(
    ("event", "place"),
    [
        (STARTED, "RUN"),
        (e.CancelRequested(), "RUN"),
        (e.ExecutionAwaiting((A,)), "RUN"),
        (e.RunPaused(), "RUN"),
        (e.SignalDelivered("go", 1), "RUN"),
        (e.Posted("x", ()), "RUN"),
        (e.ExecutionCompleted(released=1), "RUN"),
        (e.InvokeStarted(A, 1), "root.0"),
        (e.TimerFired(A), "root.0"),
        (e.SignalReceived(A, "go", 1), "root.0"),
        (e.StepSkipped(A), "root.0"),
        (e.JoinSetCreated(join_set(5)), "root.5"),
        (e.JoinSetSubmitted(join_set(5), A), "root.0"),
    ],
)
def test_event_is_keyed_under_its_step_or_the_run(event: e.Event, place: str) -> None:
    assert step_of(event) == place


def test_key_is_lower_case_hex_sha256_of_the_parts_without_spaces() -> None:
    key = idempotency_key(RUN, "root.0", 1, "StepCompleted", "v7")
    assert key == sha256(f"{RUN}|root.0|1|StepCompleted|v7")
    assert re.fullmatch("[0-9a-f]{64}", key)


def test_key_differs_by_each_part() -> None:
    made = {
        idempotency_key(RUN, "root.0", 1, "StepCompleted", "v7"),
        idempotency_key(OTHER_RUN, "root.0", 1, "StepCompleted", "v7"),
        idempotency_key(RUN, "root.1", 1, "StepCompleted", "v7"),
        idempotency_key(RUN, "root.0", 2, "StepCompleted", "v7"),
        idempotency_key(RUN, "root.0", 1, "StepFailed", "v7"),
        idempotency_key(RUN, "root.0", 1, "StepCompleted", "v8"),
    }
    assert len(made) == 6


def test_keys_of_a_journal_use_contract_names_and_run() -> None:
    writer = started(
        e.InvokeScheduled(A, "f"),
        e.InvokeStarted(A, 1),
        e.InvokeCompleted(A, 1, ok=False),
        e.ExecutionFailed(released=1),
    )
    assert keys_of(writer) == [
        sha256(f"{RUN}|RUN|1|RunStarted|v7"),
        sha256(f"{RUN}|root.0|1|InvokeScheduled|v7"),
        sha256(f"{RUN}|root.0|1|StepStarted|v7"),
        sha256(f"{RUN}|root.0|1|StepFailed|v7"),
        sha256(f"{RUN}|RUN|1|RunFailed|v7"),
    ]


def test_type_that_recurs_carries_its_number() -> None:
    writer = started(e.RunPaused(), e.RunResumed(), e.RunPaused(), e.RunResumed(), e.RunPaused())
    assert keys_of(writer)[1:] == [
        sha256(f"{RUN}|RUN|1|{name}|v7")
        for name in ("RunPaused", "RunResumed", "RunPaused#2", "RunResumed#2", "RunPaused#3")
    ]


def test_second_physical_start_of_a_step_carries_its_number() -> None:
    writer = started(e.InvokeScheduled(A, "f"), e.InvokeStarted(A, 1), e.InvokeStarted(A, 2))
    assert keys_of(writer)[-1] == sha256(f"{RUN}|root.0|1|StepStarted#2|v7")


def test_occurrences_are_counted_for_each_step() -> None:
    starts = [e.InvokeStarted(step(0), 1), e.InvokeStarted(step(1), 1)]
    schedules = [e.InvokeScheduled(step(0), "f"), e.InvokeScheduled(step(1), "f")]
    assert keys_of(started(*schedules, *starts))[-1] == sha256(f"{RUN}|root.1|1|StepStarted|v7")


@settings(max_examples=150, deadline=None)
@given(legal_journals())
def test_keys_are_unique_within_any_journal(writer: Writer) -> None:
    made = keys_of(writer)
    assert len(set(made)) == len(made) == len(writer.entries)


@settings(max_examples=100, deadline=None)
@given(legal_journals())
def test_terminal_step_events_occur_once_under_a_logical_attempt_and_carry_no_number(
    writer: Writer,
) -> None:
    labelling = Labelling()
    labels = [labelling.label(entry.event) for entry in writer.entries]
    over = [label for label in labels if label.type in TERMINAL_OF_STEP]
    assert {label.number for label in over} <= {1}
    assert len({(label.step, label.logical_attempt, label.type) for label in over}) == len(over)


@settings(max_examples=100, deadline=None)
@given(legal_journals())
def test_logical_attempts_are_those_of_the_state(writer: Writer) -> None:
    labelling = Labelling()
    seen: dict[str, int] = {}
    for entry in writer.entries:
        label = labelling.label(entry.event)
        # They rise by 1 and never fall.
        assert label.logical_attempt - seen.get(label.step, 1) in (0, 1)
        seen[label.step] = label.logical_attempt
    for place, attempt in writer.state.logical_attempts.items():
        assert labelling.logical_attempt(place) == attempt


def test_a_retried_step_begins_its_numbers_again_under_the_next_logical_attempt() -> None:
    writer = started(
        e.InvokeScheduled(A, "f"),
        e.InvokeStarted(A, 1),
        e.InvokeRetrying(A, 1, 5),
        e.InvokeStarted(A, 2),
        e.InvokeRetrying(A, 2, e.NEVER),
        e.SignalAccepted("s1", e.ActType.RETRY_STEP, step=A),
        e.InvokeStarted(A, 3),
        e.InvokeCompleted(A, 3),
    )
    assert keys_of(writer)[2:] == [
        sha256(f"{RUN}|root.0|1|StepStarted|v7"),
        sha256(f"{RUN}|root.0|1|InvokeRetrying|v7"),
        sha256(f"{RUN}|root.0|1|StepStarted#2|v7"),
        sha256(f"{RUN}|root.0|1|StepFailed|v7"),
        sha256(f"{RUN}|RUN|1|SignalAccepted|v7"),
        sha256(f"{RUN}|root.0|2|StepStarted|v7"),
        sha256(f"{RUN}|root.0|2|StepCompleted|v7"),
    ]


def test_a_parked_step_that_a_cancel_settles_fails_once() -> None:
    writer = started(
        e.InvokeScheduled(A, "f"),
        e.InvokeStarted(A, 1),
        e.InvokeRetrying(A, 1, e.NEVER),
        e.InvokeCompleted(A, 1, ok=False),
    )
    assert keys_of(writer)[-2:] == [
        sha256(f"{RUN}|root.0|1|StepFailed|v7"),
        sha256(f"{RUN}|root.0|1|InvokeCompleted|v7"),
    ]
