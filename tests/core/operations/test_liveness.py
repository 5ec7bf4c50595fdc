from perdure.core.operations.liveness import Sightings


def test_a_peer_is_stale_when_its_beat_has_not_changed_for_longer_than_the_threshold() -> None:
    sightings = Sightings()
    sightings.observe({"a": 1, "b": 1}, 0)
    sightings.observe({"a": 1, "b": 2}, 10)
    assert sightings.stale(10, 10) == []
    assert sightings.stale(11, 10) == ["a"]
    assert (sightings.age_ms("a", 11), sightings.age_ms("b", 11)) == (11, 1)


def test_an_observer_that_starts_late_gives_every_peer_the_whole_threshold() -> None:
    sightings = Sightings()
    sightings.observe({"old": 1}, 1_000_000)
    assert sightings.stale(1_000_010, 10) == []


def test_beats_are_only_compared_for_change_so_a_clock_may_be_set_back() -> None:
    sightings = Sightings()
    sightings.observe({"a": 500}, 0)
    sightings.observe({"a": 400}, 10)
    assert sightings.age_ms("a", 10) == 0


def test_a_peer_that_left_and_comes_back_with_its_old_beat_is_new() -> None:
    sightings = Sightings()
    sightings.observe({"a": 1}, 0)
    sightings.observe({}, 10)
    sightings.observe({"a": 1}, 20)
    assert sightings.age_ms("a", 20) == 0
