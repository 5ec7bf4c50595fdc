"""Contract events: every column, computed from the journal."""

import re
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, settings

from perdure.core.codec import JsonCodec
from perdure.core.errors import CorruptJournal
from perdure.core.ids import RunId
from perdure.core.journal import events as e
from perdure.core.journal.contract import EventType, keys
from perdure.core.journal.entry import erase
from perdure.core.replay.identity import next_run_id
from perdure.core.runs.contract_event import ADAPTER_VERSION, ContractEvent, event_id
from perdure.core.runs.contract_reader import ContractReader, RunOrigin
from tests.core.journal.specimens import SPECIMENS
from tests.core.journal.strategies import legal_journals
from tests.core.journal.writer import OTHER_RUN, RUN, STARTED, Writer, started, step, written
from tests.core.runs.histories import REF, failure, history_of, last_of, named

A = step(0)
PLAIN = e.InvokeScheduled(A, "charge", payload=b'{"amount":3}')
RETRIED = e.InvokeScheduled(A, "charge", retry_policy=e.RetryPolicy(2))
PARKED = (PLAIN, e.InvokeStarted(A, 1), e.InvokeRetrying(A, 1, e.NEVER, payload=failure()))
RETRY = e.SignalAccepted("s1", e.ActType.RETRY_STEP, "ops", step=A)


@settings(max_examples=100, deadline=None)
@given(legal_journals())
def test_every_column_of_any_journal_is_filled(writer: Writer) -> None:
    history = history_of(writer)
    assert [event.seq for event in history] == list(range(len(writer.entries)))
    assert [event.idempotency_key for event in history] == list(keys(RUN, "v7", writer.entries))
    assert len({event.event_id for event in history}) == len(history)
    ids = {event.event_id: event.seq for event in history}
    for event, entry in zip(history, writer.entries, strict=True):
        assert (event.run_id, event.offset) == (RUN, event.seq)
        assert (event.emitted_at_ms, event.persisted_at_ms) == (entry.at_ms, entry.at_ms)
        assert (event.adapter_version, event.engine_run_ref) == (ADAPTER_VERSION, REF)
        assert event.parent_event is None or ids[event.parent_event] < event.seq


@settings(max_examples=50, deadline=None)
@given(legal_journals())
def test_events_survive_json(writer: Writer) -> None:
    history = history_of(writer)
    assert msgspec.json.decode(msgspec.json.encode(history), type=list[ContractEvent]) == history


@pytest.mark.parametrize("event", [event for event, _ in SPECIMENS], ids=lambda x: type(x).__name__)
def test_every_event_of_the_journal_has_a_type_and_data_without_bytes(event: e.Event) -> None:
    writer = Writer()
    entry = written(STARTED).entries[0]
    sealed = None
    if isinstance(event, e.Carrier):
        sealed, event = bytes(16) + b'{"a":1}', msgspec.structs.replace(event, payload=None)
    body = msgspec.json.encode(event).decode()
    writer.entries.append(msgspec.structs.replace(entry, body=body, sealed=sealed))
    (found,) = history_of(writer)
    assert found.type in EventType
    assert "bytes" not in {type(value).__name__ for value in found.data.values()}
    assert {"a": 1} in found.data.values() or sealed is None or "error" in found.data


def test_the_event_id_is_a_uuid_that_depends_on_run_and_number() -> None:
    found = UUID(event_id(RUN, 3))
    assert (found.version, found.variant) == (8, "specified in RFC 4122")
    assert event_id(RUN, 3) == str(found)
    assert len({event_id(RUN, 3), event_id(RUN, 4), event_id(OTHER_RUN, 3)}) == 3


def test_the_journal_names_a_step_of_a_run_event_none() -> None:
    begun, scheduled = history_of(started(PLAIN))
    assert (begun.step, begun.type) == (None, EventType.RUN_STARTED)
    assert (scheduled.step, scheduled.type) == (A, EventType.INVOKE_SCHEDULED)


def test_inputs_results_and_values_are_decoded() -> None:
    events = history_of(
        started(
            PLAIN,
            e.InvokeStarted(A, 1),
            e.InvokeCompleted(A, 1, payload=b'{"id":7}'),
            e.SignalDelivered("go", 1, payload=b"true"),
            e.ExecutionCompleted(released=1, payload=b'["done"]'),
        )
    )
    assert events[0].data["input"] == {}
    assert events[1].data["input"] == {"amount": 3}
    assert events[3].data["result"] == {"id": 7}
    assert events[4].data["value"] is True
    assert events[5].data["result"] == ["done"]


def test_an_erased_payload_is_marked_and_an_unreadable_one_does_not_hide_its_event() -> None:
    writer = started(e.InvokeScheduled(A, "charge", payload=b"\xff"))
    writer.entries[0] = erase(writer.entries[0])
    begun, scheduled = history_of(writer)
    assert begun.data["erased"] is True
    assert "input" not in begun.data
    assert scheduled.data["unreadable"].startswith("payload is not")


def test_engine_attempts_are_those_of_starts_outcomes_and_retries() -> None:
    events = history_of(
        started(
            RETRIED,
            e.InvokeStarted(A, 1),
            e.InvokeRetrying(A, 1, 5),
            e.InvokeStarted(A, 2),
            e.InvokeCompleted(A, 2),
        )
    )
    assert [event.engine_attempt for event in events] == [None, None, 1, 1, 2, 2]
    assert {event.logical_attempt for event in events} == {1}


@pytest.mark.parametrize(
    ("events", "retryable"),
    [
        ((PLAIN, e.InvokeStarted(A, 1), e.InvokeCompleted(A, 1, False, payload=failure())), False),
        (
            (
                *(RETRIED, e.InvokeStarted(A, 1), e.InvokeRetrying(A, 1, 5), e.InvokeStarted(A, 2)),
                e.InvokeCompleted(A, 2, False, payload=failure()),
            ),
            True,
        ),
        (
            (RETRIED, e.InvokeStarted(A, 1), e.InvokeCompleted(A, 1, False, payload=failure())),
            False,
        ),
        ((RETRIED, e.InvokeStarted(A, 1), e.InvokeRetrying(A, 1, 5, payload=failure())), True),
        (PARKED, True),
    ],
    ids=["no retries", "retries exhausted", "given up on", "retried", "parked"],
)
def test_an_error_says_whether_another_attempt_could_succeed(
    events: tuple[e.Event, ...], retryable: bool
) -> None:
    error = last_of(started(*events)).data["error"]
    assert (error["code"], error["message"]) == ("ValueError", "no")
    assert error["retryable"] is retryable
    assert re.fullmatch("[0-9a-f]{16}", error["fingerprint"])


def test_a_parked_step_says_so_and_has_no_time_of_a_retry() -> None:
    data = last_of(started(*PARKED)).data
    assert (data["parked"], "retry_at_ms" in data) == (True, False)


def test_events_of_a_retried_step_name_the_act_and_follow_from_it() -> None:
    events = history_of(
        started(*PARKED, RETRY, e.InvokeStarted(A, 2), e.InvokeCompleted(A, 2, payload=b"1"))
    )
    assert named(events[3:]) == ["StepFailed", "SignalAccepted", "StepStarted", "StepCompleted"]
    assert [event.logical_attempt for event in events[3:]] == [1, 1, 2, 2]
    assert [event.caused_by_signal for event in events[3:]] == [None, "s1", "s1", "s1"]
    assert events[5].parent_event == events[4].event_id
    assert events[6].parent_event == events[5].event_id


def test_effects_of_acts_follow_from_their_decisions() -> None:
    events = history_of(
        started(
            e.SignalAccepted("p", "PAUSE"),
            e.RunPaused(signal_id="p"),
            e.SignalAccepted("r", "RESUME"),
            e.RunResumed(signal_id="r"),
            e.SignalAccepted("c", "CANCEL"),
            e.CancelRequested(signal_id="c"),
            e.SignalRejected("x", "PAUSE"),
            e.ExecutionCancelled(released=1),
        )
    )
    assert [event.caused_by_signal for event in events[1:]] == list("pprrccxc")
    for effect in (2, 4, 6):
        assert events[effect].parent_event == events[effect - 1].event_id
    assert events[8].parent_event == events[6].event_id


def test_a_skip_by_an_operator_follows_from_its_decision() -> None:
    skip = e.StepSkipped(A, "known", 1, "s2", payload=b"7")
    decision, skipped = history_of(started(PLAIN, e.SignalAccepted("s2", "SKIP_STEP"), skip))[2:]
    assert (skipped.parent_event, skipped.caused_by_signal) == (decision.event_id, "s2")
    assert skipped.data["value"] == 7


def test_a_received_signal_follows_from_its_delivery() -> None:
    events = history_of(
        started(e.SignalDelivered("go", 1), e.SignalReceived(A, "go", 1), e.RunPaused())
    )
    assert events[2].parent_event == events[1].event_id


def test_a_run_that_continues_another_counts_offsets_on_and_follows_from_its_end() -> None:
    writer = Writer(next_run_id(RUN))
    writer.append(msgspec.structs.replace(STARTED, continues=RUN), PLAIN)
    origin = RunOrigin(next_run_id(RUN), REF, 10, RUN, 10)
    reader = ContractReader(origin, JsonCodec())
    begun, scheduled = [reader.read(entry) for entry in writer.entries]
    assert begun.parent_event == event_id(RUN, 9)
    assert [(event.seq, event.offset) for event in (begun, scheduled)] == [(0, 10), (1, 11)]


def test_a_reader_refuses_a_gap_and_continues_when_it_closes() -> None:
    writer = started(PLAIN, e.InvokeStarted(A, 1))
    reader = ContractReader(RunOrigin(RUN, REF), JsonCodec())
    first = reader.read(writer.entries[0])
    with pytest.raises(CorruptJournal, match="entry 1 of run"):
        reader.read(writer.entries[2])
    assert [first, *map(reader.read, writer.entries[1:])] == history_of(writer)


def test_an_event_that_follows_skipped_ones_is_the_same() -> None:
    writer = started(*PARKED, RETRY, e.InvokeStarted(A, 2), e.InvokeCompleted(A, 2, payload=b"1"))
    reader = ContractReader(RunOrigin(RUN, REF), JsonCodec())
    for entry in writer.entries[:-1]:
        reader.skip(entry)
    assert reader.read(writer.entries[-1]) == last_of(writer)


def test_a_copied_reader_continues_by_itself() -> None:
    writer = started(*PARKED, RETRY, e.InvokeStarted(A, 2), e.InvokeCompleted(A, 2, payload=b"1"))
    for cut in range(len(writer.entries)):
        reader = ContractReader(RunOrigin(RUN, REF), JsonCodec())
        for entry in writer.entries[:cut]:
            reader.skip(entry)
        other = reader.copied()
        for each in (reader, other):
            assert list(map(each.read, writer.entries[cut:])) == history_of(writer)[cut:]


def test_the_repr_fits_a_line_and_names_step_attempt_and_data() -> None:
    events = history_of(started(*PARKED, RETRY, e.InvokeStarted(A, 2)))
    assert repr(events[1]) == (
        "<1 InvokeScheduled root.0 at 1970-01-01T00:00:01.000+00:00: "
        "function_name='charge', input={'amount': 3}>"
    )
    assert repr(events[-1]).startswith("<5 StepStarted root.0 retry #1 attempt 2 at 1970")
    assert all(len(repr(event)) < 250 for event in events)
    assert RunId(events[0].run_id) == RUN
