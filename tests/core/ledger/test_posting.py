"""Postings in general: against a slow reference that reads the digits as text."""

from collections import Counter
from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perdure.core.errors import LedgerError
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
    ActivityLedger,
    DigitLayout,
    post,
    read_all,
    require_possible,
)
from perdure.core.ledger.rules import judge_posting

NAMED = {
    ACTIVITY: (ATTEMPT, LEG1_DONE, ENTRY, FINALIZE, AUTHORIZE, TRIGGER_SEED),
    MESSAGE: (1, WORK_DONE, SPAWNED, CLOSED, COMPLETED, SPAWNED + CLOSED),
}
EDGES = {0, 1, 2, 9, 10, 11, 98, 99, 99_999_998, 99_999_999}

layouts = st.sampled_from([ACTIVITY, MESSAGE])


def cut(balance: int, layout: DigitLayout) -> dict[str, int]:
    text = str(balance).zfill(15)
    return {
        field.name: int(text[field.position - 1 : field.position - 1 + field.width])
        for field in layout.fields
    }


def is_sound(balance: int, layout: DigitLayout) -> bool:
    if not 0 <= balance < 10**15:
        return False
    has = cut(balance, layout)
    if any(has[field.name] > field.maximum for field in layout.fields):
        return False
    if layout is ACTIVITY:
        return (
            (not has["leg1_done"] or has["attempts"] > 0)
            and (has["leg1_done"] == 1 or (has["entries"] == 0 and has["finalize"] == 0))
            and (has["finalize"] != 1 or has["entries"] > 0)
        )
    steps = (has["work_done"], has["spawned"], has["completed"])
    return steps in {(0, 0, 0), (1, 0, 0), (1, 1, 0), (1, 1, 1)} and (
        has["spawned"] >= has["closed"]
        and (not has["completed"] or has["closed"] == 1 or has["ordinal"] == 0)
    )


def is_allowed(balance: int, increment: int, layout: DigitLayout) -> bool:
    if not is_sound(balance, layout) or not 0 <= increment < 10**15:
        return False
    has, adds = cut(balance, layout), cut(increment, layout)
    for field in layout.fields:
        if has[field.name] + adds[field.name] > field.maximum:
            return False
        if field.width == 1 and has[field.name] and adds[field.name]:
            return False
    if not is_sound(balance + increment, layout):
        return False
    if layout is ACTIVITY:
        born_late = adds["finalize"] == 1 and balance != 0
        entered_late = has["finalize"] == 2 and adds["entries"] > 0
        return not born_late and not entered_late
    seeded_late = adds["ordinal"] > 0 and balance != 0
    return not seeded_late and adds["closed"] <= adds["spawned"]


@st.composite
def numbers(draw: st.DrawFn, layout: DigitLayout) -> int:
    """Mostly values at the limits of fields; sometimes any value."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.integers(-(10**13), 10**16))
    parts = (
        (f.weight, [n for n in EDGES if n <= f.maximum + draw(st.sampled_from([0, 0, 0, 1]))])
        for f in layout.fields
    )
    return sum(weight * draw(st.sampled_from(sorted(values))) for weight, values in parts)


@st.composite
def postings(draw: st.DrawFn) -> tuple[int, int, DigitLayout]:
    layout = draw(layouts)
    balance = draw(numbers(layout).filter(lambda n: is_sound(n, layout)) | numbers(layout))
    named = st.lists(st.sampled_from(NAMED[layout]), max_size=4).map(sum)
    return balance, draw(named | numbers(layout)), layout


def accepted(balance: int, increment: int, layout: DigitLayout) -> int | None:
    try:
        return post(balance, increment, layout)
    except LedgerError:
        return None


@given(postings())
@example((0, TRIGGER_SEED, ACTIVITY))
@example((99 * ATTEMPT, ATTEMPT, ACTIVITY))
@example((11_000_000_000, COMPLETED, MESSAGE))
def test_a_posting_is_accepted_exactly_when_the_reference_accepts_it(
    posting: tuple[int, int, DigitLayout],
) -> None:
    balance, increment, layout = posting
    expected = balance + increment if is_allowed(balance, increment, layout) else None
    assert accepted(balance, increment, layout) == expected


def test_every_move_between_boundary_values_matches_the_reference() -> None:
    edges = {
        ACTIVITY: ((0, 1, 2), (0, 1, 98, 99), (0, 1), (0, 1), (0, 1, 99_999_999)),
        MESSAGE: ((0, 1), (0, 1), (0, 1), (0, 1), (0, 1), (0, 1, 99_999_999)),
    }
    for layout, values in edges.items():
        weights = [field.weight for field in layout.fields]
        found = [sum(map(int.__mul__, weights, digits)) for digits in product(*values)]
        for balance, increment in product((n for n in found if is_sound(n, layout)), found):
            expected = balance + increment if is_allowed(balance, increment, layout) else None
            assert accepted(balance, increment, layout) == expected, (balance, increment)


@given(postings())
def test_the_fast_check_agrees_with_the_rules(posting: tuple[int, int, DigitLayout]) -> None:
    balance, increment, layout = posting
    try:
        thorough: int | None = judge_posting(balance, increment, layout)
    except LedgerError:
        thorough = None
    assert accepted(balance, increment, layout) == thorough


@pytest.mark.parametrize("layout", [ACTIVITY, MESSAGE], ids=lambda layout: layout.name)
@pytest.mark.parametrize("beyond", [-(10**16), -(10**15), -(10**12), 10**12, 10**15, 10**16])
def test_nothing_beyond_fifteen_digits_passes_for_a_smaller_posting(
    layout: DigitLayout, beyond: int
) -> None:
    sound = [n * layout.fields[1].weight for n in range(100)] + [n * 10**8 for n in range(12_000)]
    for balance in (n for n in sound if is_sound(n, layout)):
        for increment in (beyond, beyond + NAMED[layout][0], beyond + NAMED[layout][1]):
            expected = is_allowed(balance, increment, layout)
            assert (accepted(balance, increment, layout) is not None) == expected


@given(layouts, st.data())
def test_a_balance_is_the_sum_of_the_accepted_postings(
    layout: DigitLayout, data: st.DataObject
) -> None:
    balance = total = 0
    for increment in data.draw(st.lists(st.sampled_from(NAMED[layout]), max_size=40)):
        after = accepted(balance, increment, layout)
        if after is not None:
            balance, total = after, total + increment
    assert balance == total


@given(layouts, st.data())
def test_fields_read_back_the_postings_to_them(layout: DigitLayout, data: st.DataObject) -> None:
    balance, counts = 0, Counter({field.name: 0 for field in layout.fields})
    increments = st.sampled_from(NAMED[layout]) | numbers(layout)
    for increment in data.draw(st.lists(increments, max_size=40)):
        after = accepted(balance, increment, layout)
        if after is not None:
            balance = after
            counts.update(cut(increment, layout))
    assert read_all(balance, layout) == counts


@given(postings())
def test_no_field_ever_carries_into_its_neighbour(posting: tuple[int, int, DigitLayout]) -> None:
    balance, increment, layout = posting
    after = accepted(balance, increment, layout)
    if after is not None:
        had, added = cut(balance, layout), cut(increment, layout)
        assert cut(after, layout) == {name: had[name] + added[name] for name in had}


@given(layouts, st.data())
def test_a_balance_is_possible_exactly_when_it_can_be_posted_at_once(
    layout: DigitLayout, data: st.DataObject
) -> None:
    balance = data.draw(numbers(layout))
    try:
        require_possible(balance, layout)
        possible = True
    except LedgerError:
        possible = False
    assert possible == (accepted(0, balance, layout) is not None)


@given(postings().filter(lambda posting: not is_allowed(*posting)))
def test_every_refusal_has_a_text_and_a_remedy(posting: tuple[int, int, DigitLayout]) -> None:
    with pytest.raises(LedgerError, match=r"\(.*\): \w"):
        post(*posting)


@pytest.mark.parametrize("balance", [TRIGGER_SEED, ATTEMPT + LEG1_DONE], ids=["judged", "quick"])
def test_posting_to_a_ledger_object_gives_a_plain_integer(balance: int) -> None:
    assert type(post(ActivityLedger(balance), ENTRY, ACTIVITY)) is int


@pytest.mark.parametrize("layout", [ACTIVITY, MESSAGE], ids=lambda layout: layout.name)
def test_posting_nothing_to_an_empty_account_is_allowed(layout: DigitLayout) -> None:
    assert post(0, 0, layout) == 0
