"""Which hosts are dead, as one host sees it.

A host is dead if its beat has not changed for longer than its own threshold, or if it owns runs or work and has had no
row for that time: a live host has a row before it owns anything. Times are of the observer's monotonic clock.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from perdure.core.ids import HostId
from perdure.core.operations.liveness import Sightings

_ABSENT = None
"""The beat of a host without a row."""


class Peer(NamedTuple):
    """A host's row, with its own threshold: hosts may have different settings."""

    host: HostId
    beat: int
    stale_after_ms: int


class HostWatch:
    """What one host has seen of the others, as of its last look. Times are of its own monotonic clock."""

    def __init__(self, stale_after_ms: int) -> None:
        self._stale_after_ms = stale_after_ms
        self._thresholds: dict[str, int] = {}
        self._sightings = Sightings()
        self._looked_ms: int | None = None

    def look(self, peers: Sequence[Peer], holders: Iterable[HostId], now_ms: int) -> None:
        """Record all rows, and all holders of runs or work.

        An observer that has not looked for long can't know whether its peers were silent: it restarts all ages. So
        after an outage of the store no host declares all others dead.
        """
        if self._looked_ms is not None and not is_fresh(
            self._looked_ms, now_ms, self._stale_after_ms
        ):
            self._sightings = Sightings()
        self._looked_ms = now_ms
        beats: dict[str, object] = dict.fromkeys(holders, _ABSENT)
        self._thresholds = {peer.host: peer.stale_after_ms for peer in peers}
        beats |= {peer.host: peer.beat for peer in peers}
        self._sightings.observe(beats, now_ms)

    def sees(self, host: HostId) -> bool:
        """Whether the host had a row, or held anything, at the last look."""
        return host in self._sightings

    def silent_ms(self, host: HostId) -> int:
        """How long this observer has seen the same beat of the host."""
        return self._sightings.age_ms(host, self._looked_ms or 0)

    def is_gone(self, host: HostId) -> bool:
        """Whether the host was silent for longer than its threshold; without a row, than this host's threshold."""
        return self.silent_ms(host) > self._thresholds.get(host, self._stale_after_ms)


def is_fresh(confirmed_ms: int, now_ms: int, stale_after_ms: int) -> bool:
    """Whether a heartbeat confirmed at that time still allows this host to start tasks, or to judge others.

    Half the threshold: long before another host may declare this one dead.
    """
    return now_ms - confirmed_ms <= stale_after_ms // 2
