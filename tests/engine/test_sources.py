from perdure.core.ids import RunId
from perdure.testing.explorer import VirtualSources

ONE, OTHER = RunId("r_one"), RunId("r_other")


def test_arrivals_at_one_address_are_distinct() -> None:
    sources = VirtualSources(1000)
    assert [sources.arrival(ONE) for _ in range(3)] == [1000, 1001, 1002]
    assert sources.arrival(OTHER) == 1000
    sources.advance(1)
    assert sources.arrival(ONE) == 1003
    assert sources.arrival(OTHER) == 1001
    sources.advance(10)
    assert [sources.arrival(place) for place in (ONE, ONE, OTHER)] == [1011, 1012, 1011]


def test_past_arrivals_are_forgotten() -> None:
    sources = VirtualSources(1000)
    for number in range(100):
        sources.arrival(RunId(f"r_{number}"))
    sources.advance(1)
    sources.arrival(ONE)
    assert set(sources._given) == {ONE}
