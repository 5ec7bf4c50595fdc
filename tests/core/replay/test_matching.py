from hashlib import sha256
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.ids import Guid, RunId, SetId, StepId
from perdure.core.journal import events as e
from perdure.core.ledger import AccountId
from perdure.core.replay.matching import Divergence, differs
from perdure.core.replay.shapes import shape

STEP, OTHER_STEP = StepId("root.0"), StepId("root.1")
GUID = Guid("m_1_2")
SET = SetId("root.7")

SAMPLES: list[e.Event] = [
    e.ExecutionStarted(
        "flow",
        "aa",
        "bb",
        "1",
        "r/s",
        "key",
        StepId("t"),
        GUID,
        RunId("r_0"),
        2,
        "s",
        "r_9@4",
        "r_9",
        {"customer": "acme"},
        "00-" + "1" * 32 + "-" + "2" * 16 + "-01",
        "slot",
        payload=b"{}",
    ),
    e.ExecutionCompleted(payload=b"1", released=1, guid=GUID, step=STEP),
    e.ExecutionFailed(payload=b"1", released=1, guid=GUID, step=STEP),
    e.ExecutionCancelled(payload=b"1", released=1, guid=GUID, step=STEP, reason="why"),
    e.RunContinued(RunId("r_1"), payload=b"1", released=1, guid=GUID, step=STEP),
    e.CancelRequested("why", GUID, signal_id="1"),
    e.InvokeScheduled(
        STEP, "charge", e.InvokeKind.HTTP, e.RetryPolicy(3), staged=True, queue="q", payload=b"{}"
    ),
    e.InvokeStarted(STEP, 1),
    e.InvokeCompleted(
        STEP, 1, False, GUID, True, artifacts=(e.ArtifactRef("file:x", "log"),), payload=b"1"
    ),
    e.InvokeRetrying(STEP, 1, 1000, "q", payload=b"1"),
    e.RandomGenerated(STEP, 7),
    e.TimeRecorded(STEP, 7),
    e.TimerScheduled(STEP, 500, 1000, True),
    e.TimerFired(STEP, GUID, True),
    e.SignalDelivered("approval", 1, GUID, payload=b"true"),
    e.SignalReceived(STEP, "approval", 1, GUID, True, True, payload=b"true"),
    e.ExecutionAwaiting((STEP,), e.AwaitKind.SIGNAL, e.AwaitSignal("approval", STEP)),
    e.ExecutionResumed(),
    e.JoinSetCreated(SET),
    e.JoinSetSubmitted(SET, STEP),
    e.JoinSetAwaited(SET, STEP),
    e.RunApproved("me"),
    e.RunPaused("why", "1"),
    e.RunResumed("1"),
    e.StepSkipped(STEP, "why", 1, "1", GUID, payload=b"1"),
    e.SignalAccepted("1", "pause", "me", GUID, "admin", STEP, "why", payload=b"{}"),
    e.SignalRejected("1", "pause", "me", "why", GUID, "admin", STEP, "DENIED"),
    e.Posted("label", (e.Posting(AccountId("step:root.0"), 1),), 1),
]

IGNORED = {
    ("TimerScheduled", "fire_at_ms"),
    ("InvokeScheduled", "retry_policy"),
    ("InvokeScheduled", "place"),
    ("InvokeScheduled", "queue"),
    ("RandomGenerated", "value"),
    ("TimeRecorded", "time_us"),
    ("InvokeCompleted", "payload"),
    ("ExecutionFailed", "payload"),
}

FIELDS = [(sample, name) for sample in SAMPLES for name in type(sample).__struct_fields__]
IDS = [f"{type(sample).__name__}.{name}" for sample, name in FIELDS]


def changed(event: e.Event, name: str) -> e.Event:
    return msgspec.structs.replace(event, **{name: another(getattr(event, name))})


def another(value: Any) -> Any:
    """A value of the same type that is not the same."""
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case bytes():
            return value + b" "
        case e.InvokeKind():
            return e.InvokeKind.FUNCTION
        case e.AwaitKind():
            return e.AwaitKind.ALL
        case str():
            return value + "x"
        case tuple():
            return ()
        case _:
            return None


def test_every_event_has_a_sample() -> None:
    assert {type(sample) for sample in SAMPLES} == set(e.EVENTS)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: type(sample).__name__)
def test_an_event_does_not_differ_from_its_equal(sample: e.Event) -> None:
    assert not differs(sample, msgspec.structs.replace(sample))


@pytest.mark.parametrize(("sample", "name"), FIELDS, ids=IDS)
def test_a_changed_field_makes_an_event_differ_unless_it_is_ignored(
    sample: e.Event, name: str
) -> None:
    is_ignored = (type(sample).__name__, name) in IGNORED
    assert differs(sample, changed(sample, name)) is not is_ignored


@given(st.sampled_from(SAMPLES), st.sampled_from(SAMPLES))
def test_events_of_two_kinds_differ(one: e.Event, other: e.Event) -> None:
    assert differs(one, other) == (type(one) is not type(other))


@pytest.mark.parametrize(
    "sample",
    [sample for sample in SAMPLES if isinstance(sample, e.Carrier)],
    ids=lambda sample: type(sample).__name__,
)
def test_an_erased_payload_matches_any_payload(sample: e.Carrier) -> None:
    assert not differs(msgspec.structs.replace(sample, payload=None), sample)


def test_a_missing_payload_of_the_program_does_not_count_as_erased() -> None:
    recorded = e.ExecutionCompleted(payload=b"1", released=1)
    assert differs(recorded, e.ExecutionCompleted(released=1))


def test_an_ignored_field_does_not_hide_other_differences() -> None:
    recorded = e.InvokeScheduled(STEP, "charge", retry_policy=e.RetryPolicy(3), payload=b"{}")
    actual = e.InvokeScheduled(STEP, "ship", retry_policy=None, payload=b"{}")
    assert differs(recorded, actual)


# How a divergence reads


def test_a_divergence_shows_both_sides_and_the_place() -> None:
    found = Divergence(
        7,
        e.InvokeScheduled(STEP, "charge", payload=b'{"order":1}'),
        e.InvokeScheduled(STEP, "ship", payload=b'{"order":1}'),
        "flow.py:12 in checkout",
    )
    assert str(found).splitlines() == [
        "at entry 7, flow.py:12 in checkout:",
        "  - journal: InvokeScheduled("
        "promise_id=root.0, function_name=charge, kind=function, payload={order: int} (sha256 a781679e))",
        "  + program: InvokeScheduled("
        "promise_id=root.0, function_name=ship, kind=function, payload={order: int} (sha256 a781679e))",
    ]


def test_a_divergence_shows_its_reason_last() -> None:
    found = Divergence(1, e.ExecutionResumed(), None, "in flow", "the program raised")
    assert str(found).splitlines()[1:] == [
        "  - journal: ExecutionResumed()",
        "  + program: (nothing)",
        "  the program raised",
    ]


def test_a_long_payload_is_cut_where_it_is_revealed() -> None:
    found = Divergence(1, e.ExecutionCompleted(payload=b"x" * 201, released=1), None, "in flow")
    assert f"payload={'x' * 200}...)" in found.text(reveal=True)


def test_a_payload_that_is_no_text_is_revealed_nevertheless() -> None:
    found = Divergence(1, e.ExecutionCompleted(payload=b"\xff", released=1), None, "in flow")
    assert "payload=\N{REPLACEMENT CHARACTER})" in found.text(reveal=True)


@pytest.mark.parametrize(
    ("payload", "shown"),
    [
        (
            b'{"card":"4711","items":[1,2],"to":{"alice":1}}',
            "{card: str, items: list of 2, to: dict of 1}",
        ),
        (b'[{"card":"4711"}]', "list of 1"),
        (b"null", "null"),
        (b"true", "bool"),
        (b"1.5", "float"),
        (b"\xff\x00", "2 bytes"),
    ],
)
def test_a_shape_shows_kinds_and_outermost_names_and_no_value(payload: bytes, shown: str) -> None:
    digest = sha256(payload).hexdigest()[:8]
    assert shape(payload) == f"{shown} (sha256 {digest})"
