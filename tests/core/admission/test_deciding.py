import pytest

from perdure.core.admission.deciding import Fate, Standing, judge, room, round_robin
from perdure.core.admission.rules import Over, Pace, Rules

FULL = Standing(running=2)


def fate(rules: Rules, standing: Standing, *, is_ready: bool = True) -> Fate:
    return judge(rules, standing, 1000, is_ready=is_ready).fate


@pytest.mark.parametrize(
    ("over", "expected"),
    [
        ("queue", Fate.WAIT),
        ("reject", Fate.REJECT),
        ("delay", Fate.DELAY),
        ("replace", Fate.REPLACE),
        ("join", Fate.JOIN),
    ],
)
def test_over_decides_what_a_start_does_without_a_free_slot(over: Over, expected: Fate) -> None:
    rules = Rules(2, over=over)
    assert fate(rules, Standing(running=1)) is Fate.ADMIT
    assert fate(rules, Standing(running=2)) is expected


def test_a_start_goes_behind_those_that_are_ready() -> None:
    assert fate(Rules(2), Standing(running=1, ready=1, waiting=1)) is Fate.WAIT
    assert fate(Rules(2), Standing(running=1, ready=0, waiting=1)) is Fate.ADMIT, "it is delayed"


def test_each_start_counts_for_the_next() -> None:
    standing = Standing()
    fates = [fate(Rules(2, queued=1), standing) for _ in range(4)]
    assert fates == [Fate.ADMIT, Fate.ADMIT, Fate.WAIT, Fate.REJECT]


def test_a_start_that_waits_for_approval_takes_no_slot_and_counts_in_the_line() -> None:
    standing = Standing()
    assert fate(Rules(1, queued=1), standing, is_ready=False) is Fate.WAIT
    assert (standing.running, standing.ready, standing.waiting) == (0, 0, 1)
    assert fate(Rules(1, queued=1), standing, is_ready=False) is Fate.REJECT


def test_a_rejection_says_when_the_rate_allows_the_start() -> None:
    rules = Rules(over="reject", pace=Pace(2, 1000, 1))
    standing = Standing()
    assert judge(rules, standing, 1000, is_ready=True) == (Fate.ADMIT, 0)
    assert judge(rules, standing, 1100, is_ready=True) == (Fate.REJECT, 400)


def test_room_is_what_the_slots_and_the_rate_leave() -> None:
    assert room(Rules(5), Standing(running=2), 0, 100) == 3
    assert room(Rules(5), Standing(running=9), 0, 100) == 0, "an operator lowered the limit"
    assert room(Rules(pace=Pace(10, 1000, 4)), Standing(), 0, 100) == 4
    assert room(Rules(3, pace=Pace(10, 1000, 4)), Standing(running=1), 0, 100) == 2
    assert room(Rules(pace=None), Standing(), 0, 7) == 7


def test_scopes_have_their_turns_one_after_the_other() -> None:
    lines = {"a": [1, 2, 3], "b": [4], "c": [5, 6]}
    assert round_robin(lines, "", 4) == [("a", 1), ("b", 4), ("c", 5), ("a", 2)]
    assert round_robin(lines, "a", 3) == [("b", 4), ("c", 5), ("a", 1)]
    assert round_robin(lines, "c", 10) == [
        ("a", 1),
        ("b", 4),
        ("c", 5),
        ("a", 2),
        ("c", 6),
        ("a", 3),
    ]
    assert round_robin({}, "", 3) == []
