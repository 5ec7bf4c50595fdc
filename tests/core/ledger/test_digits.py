import pytest

from perdure.core.ledger import (
    ACTIVITY,
    ATTEMPT,
    AUTHORIZE,
    CLOSED,
    COMPLETED,
    ENTRY,
    FINALIZE,
    LEG1_DONE,
    MESSAGE,
    SPAWNED,
    TRIGGER_SEED,
    WORK_DONE,
    DigitLayout,
    digits_of,
    read,
    read_all,
)

LAYOUTS = pytest.mark.parametrize("layout", [ACTIVITY, MESSAGE], ids=lambda layout: layout.name)


@LAYOUTS
def test_the_fields_of_a_layout_cover_all_fifteen_digits_once(layout: DigitLayout) -> None:
    positions = [
        position
        for field in layout.fields
        for position in range(field.position, field.last_position + 1)
    ]
    assert positions == list(range(1, 16))


@LAYOUTS
def test_the_weight_of_a_field_is_that_of_its_last_digit(layout: DigitLayout) -> None:
    for field in layout.fields:
        assert field.weight == 10 ** (15 - field.last_position)


@LAYOUTS
def test_the_maximum_of_a_field_fits_its_width(layout: DigitLayout) -> None:
    for field in layout.fields:
        assert field.maximum < 10**field.width


def test_activity_fields_are_read_from_their_own_digits() -> None:
    assert read_all(298_112_387_654_321, ACTIVITY) == {
        "finalize": 2,
        "attempts": 98,
        "leg1_done": 1,
        "reserved": 123,
        "entries": 87_654_321,
    }


def test_message_fields_are_read_from_their_own_digits() -> None:
    assert read_all(123_456_787_654_321, MESSAGE) == {
        "reserved": 123,
        "closed": 4,
        "work_done": 5,
        "spawned": 6,
        "completed": 7,
        "ordinal": 87_654_321,
    }


@pytest.mark.parametrize(
    ("name", "increment", "value"),
    [
        ("finalize", AUTHORIZE, 1),
        ("finalize", FINALIZE, 2),
        ("attempts", ATTEMPT, 1),
        ("leg1_done", LEG1_DONE, 1),
        ("entries", ENTRY, 1),
    ],
)
def test_each_activity_increment_writes_its_own_field_only(
    name: str, increment: int, value: int
) -> None:
    assert {k: v for k, v in read_all(increment, ACTIVITY).items() if v} == {name: value}


@pytest.mark.parametrize(
    ("name", "increment"),
    [
        ("closed", CLOSED),
        ("work_done", WORK_DONE),
        ("spawned", SPAWNED),
        ("completed", COMPLETED),
    ],
)
def test_each_message_increment_writes_its_own_field_only(name: str, increment: int) -> None:
    assert {k: v for k, v in read_all(increment, MESSAGE).items() if v} == {name: 1}


def test_increments_have_the_weights_of_the_protocol() -> None:
    assert (AUTHORIZE, FINALIZE) == (100 * 10**12, 200 * 10**12)
    assert (ATTEMPT, LEG1_DONE, ENTRY) == (10**12, 100 * 10**9, 1)
    assert (CLOSED, WORK_DONE) == (100 * 10**9, 10 * 10**9)
    assert (SPAWNED, COMPLETED) == (10**9, 100 * 10**6)
    assert TRIGGER_SEED == 101_100_000_000_001


def test_increments_are_plain_integers() -> None:
    named = (AUTHORIZE, FINALIZE, ATTEMPT, LEG1_DONE, ENTRY, TRIGGER_SEED)
    assert {type(n) for n in (*named, CLOSED, WORK_DONE, SPAWNED, COMPLETED)} == {int}


def test_digits_are_printed_with_leading_zeros() -> None:
    assert digits_of(1_100_000_000_001) == "001100000000001"


def test_both_digits_of_the_attempts_are_read() -> None:
    attempts = ACTIVITY.fields[1]
    assert [read(n * ATTEMPT, attempts) for n in (0, 9, 10, 11, 99)] == [0, 9, 10, 11, 99]
