from datetime import timedelta
from math import ceil
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.authoring.durations import Duration, milliseconds
from perdure.core.errors import InputError

LONGEST_S = (1 << 52) / 1000


@pytest.mark.parametrize(
    ("duration", "expected_ms"),
    [
        (0, 0),
        (1, 1000),
        (0.25, 250),
        (0.0001, 1),
        (1.0001, 1001),
        (timedelta(minutes=2), 120_000),
        (timedelta(microseconds=1), 1),
        (LONGEST_S, 1 << 52),
    ],
)
def test_a_duration_is_whole_milliseconds_rounded_up(duration: Duration, expected_ms: int) -> None:
    assert milliseconds(duration, "sleep") == expected_ms


@given(st.floats(0, 1e9))
def test_a_duration_is_rounded_up_by_less_than_a_millisecond(seconds: float) -> None:
    assert milliseconds(seconds, "sleep") == ceil(seconds * 1000)


@pytest.mark.parametrize(
    "wrong",
    [-1, -0.001, float("nan"), float("inf"), timedelta(-1), LONGEST_S + 1, 10**400, timedelta.max],
)
def test_a_duration_that_is_negative_endless_or_beyond_the_journal_is_refused(wrong: Any) -> None:
    with pytest.raises(InputError, match="pass a duration of at least 0") as caught:
        milliseconds(wrong, "sleep")
    assert caught.value.what == f"sleep is {wrong!r}"


@pytest.mark.parametrize("wrong", ["1", None, True, [1]])
def test_duration_of_another_type_is_refused(wrong: Any) -> None:
    with pytest.raises(InputError, match="pass seconds as a number, or a timedelta") as caught:
        milliseconds(wrong, "timeout")
    assert caught.value.what == f"timeout is {wrong!r}"
