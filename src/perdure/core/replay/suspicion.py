"""Suspicion: a step that was under way at several deaths of hosts may be what they died of.

Suspects begin one after the other. Whatever the next death is of, it puts in doubt those that had begun, and the last
of them began just before it.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from perdure.core.ids import RunId, StepId

SUSPICIOUS: Final = 2
"""So many deaths make a suspect. One makes none: all that ran is in doubt then, and is to go on without delay."""

Place = tuple[RunId, StepId]
P = TypeVar("P")


class Suspect(NamedTuple):
    """At how many deaths of hosts a step was under way, and when it began last."""

    deaths: int
    begun_at_ms: int


def is_suspect(deaths: int) -> bool:
    return deaths >= SUSPICIOUS


def next_suspect(suspects: Mapping[P, Suspect], last_begun_ms: int) -> P:
    """Whose turn it is. The last of all suspects, those included that were failed since, began at `last_begun_ms`.

    First the one that began then: if it is what its host died of, it takes no other suspect along now. Then those
    with the fewest deaths: who can't afford another one begins when nobody else is left that may bring it.
    """

    def merits(place: P) -> tuple[bool, int, int]:
        deaths, begun_at_ms = suspects[place]
        return begun_at_ms < last_begun_ms, deaths, -begun_at_ms

    return min(suspects, key=merits)


def first_of_queue(deaths: Sequence[int]) -> int:
    """Which of the suspects of a queue has its turn: its place in an order that is the same each time.

    When they began a queue does not tell. So those with the fewest deaths go in order, and with one more in reverse:
    who began last begins first then, too.
    """
    fewest = min(deaths)
    places = [place for place, each in enumerate(deaths) if each == fewest]
    return places[0] if fewest % 2 == SUSPICIOUS % 2 else places[-1]
