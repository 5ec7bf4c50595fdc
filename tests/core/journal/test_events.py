import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.core.errors import CorruptJournal
from perdure.core.journal import events as e
from perdure.core.journal import guards, state
from perdure.core.journal.entry import event_from_json, event_to_json
from perdure.core.journal.postings import TABLE
from tests.core.journal.specimens import SPECIMENS
from tests.core.journal.strategies import EVENTS_BY_TYPE
from tests.core.journal.writer import step

NAMED = [pytest.param(event, text, id=type(event).__name__) for event, text in SPECIMENS]


def concrete_events(base: type[e.Event] = e.Event) -> set[type[e.Event]]:
    """Every event class of the module that is not only a base of others."""
    found: set[type[e.Event]] = set()
    for kind in base.__subclasses__():
        found |= concrete_events(kind) if kind.__subclasses__() else {kind}
    return found


def test_there_are_28_events() -> None:
    assert len(e.EVENTS) == len(set(e.EVENTS)) == 28


def test_every_event_class_is_listed() -> None:
    assert set(e.EVENTS) == concrete_events()


@pytest.mark.parametrize(
    "table",
    [
        pytest.param(set(TABLE), id="postings"),
        pytest.param(set(state.FOLD), id="fold"),
        pytest.param(set(guards.GUARDS), id="guards"),
        pytest.param({type(event) for event, _ in SPECIMENS}, id="specimens"),
        pytest.param(set(EVENTS_BY_TYPE), id="strategies"),
    ],
)
def test_table_has_a_row_for_every_event(table: set[type[e.Event]]) -> None:
    assert table == set(e.EVENTS)


@pytest.mark.parametrize(("event", "text"), NAMED)
def test_json_form_never_changes(event: e.Event, text: str) -> None:
    assert event_to_json(event) == text.encode()


@pytest.mark.parametrize(("event", "text"), NAMED)
def test_stored_json_is_still_read(event: e.Event, text: str) -> None:
    assert event_from_json(text.encode()) == event


@pytest.mark.parametrize(("event", "text"), NAMED)
def test_name_of_the_class_is_the_type_in_json(event: e.Event, text: str) -> None:
    assert json.loads(text)["type"] == type(event).__name__


@pytest.mark.parametrize("kind", e.EVENTS)
def test_event_comes_back_from_its_json(kind: type[e.Event]) -> None:
    @settings(max_examples=40, deadline=None)
    @given(EVENTS_BY_TYPE[kind])
    def comes_back(event: e.Event) -> None:
        assert type(event) is kind
        assert event_from_json(event_to_json(event)) == event

    comes_back()


@pytest.mark.parametrize(("event", "text"), NAMED)
def test_event_is_immutable(event: e.Event, text: str) -> None:
    for field in (*event.__struct_fields__, "anything"):
        with pytest.raises(AttributeError):
            setattr(event, field, None)


def test_field_with_its_default_is_left_out() -> None:
    text = event_to_json(e.InvokeScheduled(step(0), "charge"))
    assert text == b'{"type":"InvokeScheduled","promise_id":"root.0","function_name":"charge"}'


def test_event_without_a_later_field_is_read_with_its_default() -> None:
    text = b'{"type":"InvokeScheduled","promise_id":"root.0","function_name":"charge"}'
    assert event_from_json(text) == e.InvokeScheduled(step(0), "charge")


def test_empty_payload_is_not_a_missing_one() -> None:
    event = e.ExecutionFailed(released=1, payload=b"")
    assert event_from_json(event_to_json(event)) == event != e.ExecutionFailed(released=1)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"null",
        b"{}",
        b'{"type":"Carrier"}',
        b'{"type":"Terminal","released":1}',
        b'{"type":"ExecutionEnded"}',
        b'{"type":"executionresumed"}',
        b'{"type":"InvokeStarted","promise_id":"root.0"}',
        b'{"type":"InvokeStarted","promise_id":"root.0","attempt":"1"}',
        b'{"type":"ExecutionResumed"',
        b'{"type":"RunPaused","reason":"\xff"}',
    ],
)
def test_text_that_is_no_event_is_refused(text: bytes) -> None:
    with pytest.raises(CorruptJournal, match="not an event"):
        event_from_json(text)


@given(st.text().filter(lambda name: name not in {kind.__name__ for kind in e.EVENTS}))
def test_unknown_type_is_refused(name: str) -> None:
    with pytest.raises(CorruptJournal):
        event_from_json(json.dumps({"type": name}).encode())
