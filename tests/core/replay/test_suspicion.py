"""Suspects: which one starts next, and that harmless steps survive harmful ones."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.replay.doubt import MAX_DOUBTS
from perdure.core.replay.suspicion import (
    SUSPICIOUS,
    Suspect,
    first_of_queue,
    is_suspect,
    next_suspect,
)

Choose = Callable[[dict[int, Suspect], int], int]


def test_one_death_makes_no_suspect() -> None:
    assert [is_suspect(deaths) for deaths in range(4)] == [False, False, True, True]


@pytest.mark.parametrize(
    ("last_begun_ms", "expected"),
    [
        (90, ["last", "later", "seldom", "often"]),
        (95, ["later", "seldom", "last", "often"]),
    ],
)
def test_last_started_suspect_is_first_then_the_one_with_fewest_deaths(
    last_begun_ms: int, expected: list[str]
) -> None:
    suspects = {
        "often": Suspect(3, 70),
        "last": Suspect(3, 90),
        "seldom": Suspect(2, 10),
        "later": Suspect(2, 20),
    }
    turns: list[str] = []
    while suspects:
        turns.append(next_suspect(suspects, last_begun_ms))
        del suspects[turns[-1]]
    assert turns == expected


@pytest.mark.parametrize(
    ("deaths", "turn"), [([2], 0), ([2, 2, 2], 0), ([3, 3, 3], 2), ([3, 2, 3, 2], 1), ([4, 4], 0)]
)
def test_a_queue_starts_suspects_in_order_and_after_a_death_in_reverse(
    deaths: list[int], turn: int
) -> None:
    assert first_of_queue(deaths) == turn


def survivors(harmful: list[bool], choose: Choose) -> set[int]:
    """The long-running steps that are left when no process dies any more. A harmful step kills its process as soon as
    it begins."""
    suspects = {number: Suspect(SUSPICIOUS, 0) for number in range(len(harmful))}
    now = 0
    for _ in range(10 * len(harmful) + 1):
        line, under_way, last_begun = dict(suspects), dict[int, Suspect](), now
        while line and not any(harmful[number] for number in under_way):
            now += 1
            turn = choose(line, last_begun)
            under_way[turn] = Suspect(line.pop(turn).deaths + 1, now)
        if not any(harmful[number] for number in under_way):
            return set(suspects)
        suspects.update(under_way)
        suspects = {n: each for n, each in suspects.items() if each.deaths <= MAX_DOUBTS}
    raise AssertionError("processes die for ever")


@given(st.lists(st.booleans(), min_size=1, max_size=12))
def test_only_harmless_suspects_survive(harmful: list[bool]) -> None:
    assert survivors(harmful, next_suspect) == {n for n, does in enumerate(harmful) if not does}


@given(st.integers(0, 11), st.integers(1, 12))
def test_on_a_queue_all_harmless_suspects_survive_a_single_harmful_one(
    place: int, count: int
) -> None:
    def choose(line: dict[int, Suspect], _: int) -> int:
        places = sorted(line)
        return places[first_of_queue([line[each].deaths for each in places])]

    harmful = [number == place for number in range(count)]
    assert survivors(harmful, choose) == set(range(count)) - {place}
