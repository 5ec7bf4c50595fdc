from perdure.core.ids import RunId
from perdure.host.arrivals import Arrivals
from perdure.testing.explorer import VirtualSources

ONE, OTHER = RunId("r_one"), RunId("r_other")


def test_messages_to_one_place_never_arrive_at_the_same_time() -> None:
    sources = VirtualSources(1000)
    arrivals = Arrivals(sources)
    assert [arrivals.next(ONE) for _ in range(3)] == [1000, 1001, 1002]
    assert arrivals.next(OTHER) == 1000
    sources.advance(1)
    assert arrivals.next(ONE) == 1003
    assert arrivals.next(OTHER) == 1001
    sources.advance(10)
    assert [arrivals.next(ONE), arrivals.next(ONE), arrivals.next(OTHER)] == [1011, 1012, 1011]


def test_places_are_forgotten_when_their_time_is_over() -> None:
    sources = VirtualSources(1000)
    arrivals = Arrivals(sources)
    for number in range(100):
        arrivals.next(RunId(f"r_{number}"))
    sources.advance(1)
    arrivals.next(ONE)
    assert set(arrivals._given) == {ONE}
