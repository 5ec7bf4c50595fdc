"""Which hosts are gone, as far as one of them can tell.

A host is gone when its beat stood still for longer than it promised, or when it owns something and has no row: a
living host has a row before it owns anything. Both are judged by the observer's own clock.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from perdure.core.ids import HostId
from perdure.core.operations.liveness import Sightings

_ABSENT = None
"""The beat of a host without a row."""


class Peer(NamedTuple):
    """A host's row. Its own threshold counts for it: others may be set otherwise."""

    host: HostId
    beat: int
    stale_after_ms: int


class Watch:
    """What one host has seen of the others. Times are of its own monotonic clock; it judges as of its last look."""

    def __init__(self, stale_after_ms: int) -> None:
        self._stale_after_ms = stale_after_ms
        self._thresholds: dict[str, int] = {}
        self._sightings = Sightings()
        self._looked_ms: int | None = None

    def look(self, peers: Sequence[Peer], holders: Iterable[HostId], now_ms: int) -> None:
        """Take note of all rows, and of whoever holds runs or work.

        An observer that has not looked for long can't tell whether its peers were silent or it was deaf: it
        begins anew. So after an outage of the store nobody takes everybody for dead.
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

    def silent_ms(self, host: HostId) -> int:
        """For how long the host had given no sign of life, as far as this observer knows."""
        return self._sightings.age_ms(host, self._looked_ms or 0)

    def is_gone(self, host: HostId) -> bool:
        """Whether the host has been silent for longer than it promised; one without a row, than we allow."""
        return self.silent_ms(host) > self._thresholds.get(host, self._stale_after_ms)


def is_fresh(confirmed_ms: int, now_ms: int, stale_after_ms: int) -> bool:
    """Whether a heartbeat that was confirmed then still allows to begin something, or to judge others.

    Half the threshold: long before anyone may take this host for dead.
    """
    return now_ms - confirmed_ms <= stale_after_ms // 2
