"""Suspicion: a step that was running when several hosts died may be the cause.

Suspects start one after the other, so that the next death points to the suspect that started last.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from perdure.core.ids import RunId, StepId

SUSPICIOUS: Final = 2
"""Deaths that make a step a suspect. One is not enough: all running steps are in doubt then and must resume."""

RunStep = tuple[RunId, StepId]
P = TypeVar("P")


class Suspect(NamedTuple):
    """Number of host deaths while the step was running, and its last start."""

    deaths: int
    begun_at_ms: int


def is_suspect(deaths: int) -> bool:
    return deaths >= SUSPICIOUS


def next_suspect(suspects: Mapping[P, Suspect], last_begun_ms: int) -> P:
    """The suspect to start next. `last_begun_ms` is the last start of any suspect, failed ones included.

    First the suspect that started then: if it kills its host, no other suspect is running now. Then those with the
    fewest deaths, so that a suspect close to its limit starts when no other is left that may kill the host.
    """

    def merits(place: P) -> tuple[bool, int, int]:
        deaths, begun_at_ms = suspects[place]
        return begun_at_ms < last_begun_ms, deaths, -begun_at_ms

    return min(suspects, key=merits)


def first_of_queue(deaths: Sequence[int]) -> int:
    """The index of the suspect of a queue to start next; the order of suspects is the same each time.

    A queue does not record starts. So suspects with the fewest deaths start in order, and after one more death in
    reverse order: again the suspect that started last starts first.
    """
    fewest = min(deaths)
    places = [place for place, each in enumerate(deaths) if each == fewest]
    return places[0] if fewest % 2 == SUSPICIOUS % 2 else places[-1]
