"""What a store keeps of hosts, and what a host sees of its store at one glance."""

from typing import Any, Protocol

import msgspec

from perdure.core.hosts.watch import Peer
from perdure.core.ids import HostId


class NewHost(msgspec.Struct, frozen=True):
    """A host that is about to register."""

    host: HostId
    stale_after_ms: int
    queues: tuple[str, ...]
    started_at_ms: int


class Scope(msgspec.Struct, frozen=True):
    """What concerns a host: messages to its runs that are due until then, work of its queues, unowned runs of its
    programs."""

    host: HostId
    queues: tuple[str, ...]
    programs: tuple[str, ...]
    until_ms: int


class Glance(msgspec.Struct, frozen=True):
    """All that concerns a host, in one snapshot. If there is nothing to do, it tells that and when there will be."""

    peers: tuple[Peer, ...]
    """Every host that has a row, this one included."""
    holders: frozenset[HostId]
    """Who owns open runs, or has claimed work."""
    has_unowned: bool
    """Whether there are open runs of nobody, of the host's programs."""
    next_due_ms: int | None
    """When the next message is due, to runs of the host or of nobody; `None` if none is in that time."""
    next_work_ms: int | None
    """When the next work of the host's queues may be claimed; `None` if there is none."""
    has_pairs: bool = False
    """Whether there is a signal to topic and key, and a hook that waits for it."""
    deployments: int = 0
    """Grows with each version of a program that is deployed or activated."""


class Lifeline(Protocol):
    """A connection of its own for heartbeats. Belongs to the thread that beats."""

    def beat(self, scope: Scope, limit_s: float) -> Glance | None:
        """Commits: the host's next beat. Returns what it sees then, or `None` if the host has no row.

        One statement. Raises `StoreUnavailable` if it can't be done within the limit.
        """
        ...

    def close(self) -> None: ...


_PEERS = msgspec.json.Decoder(tuple[tuple[str, int, int], ...])
_NAMES = msgspec.json.Decoder(tuple[str, ...])


def glance_from(row: Any) -> Glance:
    """From the columns of the statement `glance`."""
    peers, owners, claimants, has_unowned, next_due_ms, next_work_ms, has_pairs, deployments = row
    return Glance(
        tuple(Peer(HostId(host), beat, limit) for host, beat, limit in _PEERS.decode(peers)),
        frozenset(HostId(name) for names in (owners, claimants) for name in _NAMES.decode(names)),
        bool(has_unowned),
        next_due_ms,
        next_work_ms,
        bool(has_pairs),
        deployments,
    )
