from hypothesis import given
from hypothesis import strategies as st

from perdure.core.admission.rules import Pace, Rules, Setting, in_force, parse_slot, slot_name

paces = st.builds(Pace, st.integers(1, 50), st.integers(1, 100_000), st.integers(1, 20))


@given(paces, st.lists(st.integers(0, 5000), max_size=60))
def test_in_no_window_the_rate_allows_more_than_its_burst_and_its_count(
    pace: Pace, gaps: list[int]
) -> None:
    now, arrival_us, taken = 10_000, 0, []
    for gap in gaps:
        now += gap
        count = pace.allowed(arrival_us, now, 3)
        if count:
            arrival_us = pace.after(arrival_us, now, count)
        taken += [now] * count
    for begun in set(taken):
        in_window = sum(begun <= at < begun + pace.per_ms for at in taken)
        assert in_window <= pace.burst + pace.per_ms * 1000 // pace.interval_us + 1


@given(paces, st.integers(0, 10**9), st.integers(0, 10**6))
def test_what_the_rate_refuses_now_it_allows_after_the_wait(
    pace: Pace, arrival_us: int, now: int
) -> None:
    wait_ms = pace.wait_ms(arrival_us, now)
    assert (wait_ms == 0) == (pace.allowed(arrival_us, now, 1) == 1)
    assert pace.allowed(arrival_us, now + wait_ms, 1) == 1


def test_an_operators_numbers_replace_those_of_the_code_and_no_others() -> None:
    rules = Rules(5, 10, "reject", Pace(1, 1000, 1))
    assert in_force(rules, None) == rules
    assert in_force(rules, Setting(running=7)) == Rules(7, 10, "reject", Pace(1, 1000, 1))
    assert in_force(rules, Setting(queued=0, pace=Pace(2, 500, 2))) == Rules(
        5, 0, "reject", Pace(2, 500, 2)
    )


@given(st.text(), st.none() | st.text(), st.text())
def test_slots_of_different_names_scopes_and_keys_differ(
    name: str, scope: str | None, key: str
) -> None:
    assert parse_slot(slot_name(name, scope, key)) == (name, scope, key)
