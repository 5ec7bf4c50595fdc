"""Who is alive, judged by the observer's own clock.

Clocks of different machines disagree, and a wall clock may jump. So no two clocks are ever compared: an observer
remembers when it first saw each beat, by a clock of its own that only goes forward, and a peer whose beat has not
changed for too long is stale.
"""

from collections.abc import Mapping
from typing import NamedTuple


class _Sighting(NamedTuple):
    beat: object
    since_ms: int


class Sightings:
    """What one observer has seen of its peers. Times are of its own monotonic clock."""

    def __init__(self) -> None:
        self._seen: dict[str, _Sighting] = {}

    def observe(self, beats: Mapping[str, object], now_ms: int) -> None:
        """Take note of every peer's beat; a beat is any value that changes. Who is not listed is forgotten."""
        kept = {}
        for peer, beat in beats.items():
            seen = self._seen.get(peer)
            kept[peer] = seen if seen and seen.beat == beat else _Sighting(beat, now_ms)
        self._seen = kept

    def age_ms(self, peer: str, now_ms: int) -> int:
        """For how long the peer's beat has been the same, as far as this observer knows."""
        return now_ms - self._seen[peer].since_ms

    def stale(self, now_ms: int, threshold_ms: int) -> list[str]:
        """The peers whose beat has been the same for longer than the threshold, by name."""
        return sorted(peer for peer in self._seen if self.age_ms(peer, now_ms) > threshold_ms)
