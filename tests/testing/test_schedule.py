"""All schedules, each once."""

from perdure.testing.schedule import Chooser, FaultSchedules


def ways(places: int, options: int, max_faults: int) -> list[tuple[int, ...]]:
    """Every schedule of a program that always makes the same number of choices."""
    seen = []
    for chooser in FaultSchedules(max_faults):
        for place in range(places):
            chooser.choose(f"place {place}", [str(option) for option in range(options)])
        seen.append(tuple(choice.taken for choice in chooser.choices))
    return seen


def test_no_fault_is_one_schedule() -> None:
    assert ways(3, 4, 0) == [(0, 0, 0)]


def test_one_fault_is_tried_at_every_place_in_every_way() -> None:
    seen = ways(3, 3, 1)
    expected = {(0, 0, 0), (1, 0, 0), (2, 0, 0), (0, 1, 0), (0, 2, 0), (0, 0, 1), (0, 0, 2)}
    assert set(seen) == expected
    assert len(seen) == len(expected)


def test_two_faults_are_tried_in_every_pair() -> None:
    seen = ways(4, 2, 2)
    assert len(seen) == len(set(seen)) == 1 + 4 + 6
    assert all(sum(schedule) <= 2 for schedule in seen)


def test_places_that_only_a_fault_opens_are_explored_too() -> None:
    seen = set()
    for chooser in FaultSchedules(2):
        if chooser.choose("first", ["fine", "crash"]) == "crash":
            chooser.choose("while recovering", ["fine", "crash"])
        seen.add(tuple(str(choice) for choice in chooser.faults))
    assert seen == {(), ("first: crash",), ("first: crash", "while recovering: crash")}


def test_chooser_takes_its_prefix_and_then_normal_options() -> None:
    chooser = Chooser([1])
    assert chooser.choose("a", ["x", "y"]) == "y"
    assert chooser.choose("b", ["x", "y"]) == "x"
    assert [str(fault) for fault in chooser.faults] == ["a: y"]
