"""Liveness of peers, by the observer's monotonic clock.

Clocks of different machines disagree, and a wall clock may jump. So clocks are never compared: an observer remembers
when it first saw each beat, by its own monotonic clock, and a peer whose beat has not changed for too long is stale.
"""

from collections.abc import Mapping
from typing import NamedTuple


class _Sighting(NamedTuple):
    beat: object
    since_ms: int


class Sightings:
    """The beats that one observer has seen, with times of its own monotonic clock."""

    def __init__(self) -> None:
        self._seen: dict[str, _Sighting] = {}

    def observe(self, beats: Mapping[str, object], now_ms: int) -> None:
        """Record every peer's beat; a beat is any value that changes. Peers that are not listed are forgotten."""
        kept = {}
        for peer, beat in beats.items():
            seen = self._seen.get(peer)
            kept[peer] = seen if seen and seen.beat == beat else _Sighting(beat, now_ms)
        self._seen = kept

    def __contains__(self, peer: str) -> bool:
        """Whether the peer was listed at the last observation."""
        return peer in self._seen

    def age_ms(self, peer: str, now_ms: int) -> int:
        """How long this observer has seen the same beat."""
        return now_ms - self._seen[peer].since_ms

    def stale(self, now_ms: int, threshold_ms: int) -> list[str]:
        """The peers whose beat has not changed for longer than the threshold, sorted."""
        return sorted(peer for peer in self._seen if self.age_ms(peer, now_ms) > threshold_ms)
