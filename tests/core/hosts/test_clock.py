"""A host's clock, set by the store's: how exactly that is known, and that nothing makes it jitter."""

from hypothesis import given
from hypothesis import strategies as st

from perdure.core.hosts.clock import corrected

CLOCK_MS = 1_700_000_000_000

times = st.integers(0, 10_000)


def test_first_offset_is_the_middle_of_its_bounds() -> None:
    assert corrected(None, CLOCK_MS, 1000, 1100) == CLOCK_MS - 1050


def test_an_offset_within_its_bounds_is_kept() -> None:
    assert corrected(CLOCK_MS - 1000, CLOCK_MS, 1000, 5000) == CLOCK_MS - 1000
    assert corrected(CLOCK_MS - 5000, CLOCK_MS, 1000, 5000) == CLOCK_MS - 5000


def test_a_clock_that_was_set_is_followed() -> None:
    assert corrected(CLOCK_MS, CLOCK_MS, 1000, 1010) == CLOCK_MS - 1000
    assert corrected(0, CLOCK_MS, 1000, 1010) == CLOCK_MS - 1010


@given(offset=times, answers=st.lists(st.tuples(times, times), min_size=1))
def test_error_is_never_larger_than_the_time_of_the_fastest_reply(
    offset: int, answers: list[tuple[int, int]]
) -> None:
    """Whatever the offset was before: the true offset is within the bounds of every reply."""
    known: int | None = None
    counter = 0
    for before, after in answers:
        began, read, ended = counter, counter + before, counter + before + after
        known = corrected(known, read + offset, began, ended)
        counter = ended
    assert known is not None
    assert abs(known - offset) <= min(before + after for before, after in answers)
