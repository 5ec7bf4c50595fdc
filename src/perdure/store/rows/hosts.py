"""The rows of hosts, the snapshot that a host reads of its store, and the connection for heartbeats."""

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from perdure.core.hosts.watch import Peer
from perdure.core.ids import HostId
from perdure.store.rows.records import Claim


class NewHost(msgspec.Struct, frozen=True):
    """A host that is about to register."""

    host: HostId
    stale_after_ms: int
    queues: tuple[str, ...]
    started_at_ms: int


class HostScope(msgspec.Struct, frozen=True):
    """What a host's snapshot covers: messages to its runs due until `until_ms`, work of its queues, unowned runs of its
    programs."""

    host: HostId
    queues: tuple[str, ...]
    programs: tuple[str, ...]
    until_ms: int


class HostSnapshot(msgspec.Struct, frozen=True):
    """What a host needs to know of the store, from one snapshot: whether there is something to do now, or when."""

    peers: tuple[Peer, ...]
    """Every host that has a row, this one included."""
    holders: frozenset[HostId]
    """The hosts that own open runs or have claimed work."""
    has_unowned: bool
    """Whether there are open runs of the host's programs without an owner."""
    next_due_ms: int | None
    """When the next message to runs of the host, or without an owner, is due; `None` if none is due in the scope."""
    next_work_ms: int | None
    """When the next work of the host's queues may be claimed; `None` if there is none."""
    has_pairs: bool = False
    """Whether a signal and a hook that waits for it exist and are not matched yet."""
    deployments: int = 0
    """A number that grows with each deployment or activation of a version."""
    next_tick_ms: int | None = None
    """When a host must look at a schedule of its programs; `None` if at none in the scope."""
    next_admission_ms: int | None = None
    """When a run that waits to be admitted may begin: 0 if one is ready; `None` if none is in the scope."""
    clock_ms: int | None = None
    """The time of the database server's clock; `None` if the store uses this machine's clock."""
    schema_version: int = 0
    """The store's schema version: a newer Perdure may have migrated it."""


class HeartbeatConnection(Protocol):
    """A separate connection for heartbeats. Belongs to the heartbeat's thread."""

    def beat(self, scope: HostScope, limit_s: float) -> HostSnapshot | None:
        """Commits: the host's next heartbeat. Returns its snapshot, or `None` if the host has no row.

        One statement. Raises `StoreUnavailable` if it does not succeed within `limit_s`.
        """
        ...

    def renew(self, claims: Sequence[Claim], lease_until_ms: int, limit_s: float) -> list[Claim]:
        """Commits: a longer lease. Returns the claims that still hold.

        One statement. Raises `StoreUnavailable` if it does not succeed within `limit_s`.
        """
        ...

    def close(self) -> None: ...


_PEERS = msgspec.json.Decoder(tuple[tuple[str, int, int], ...])
_NAMES = msgspec.json.Decoder(tuple[str, ...])


def snapshot_from(row: Any) -> HostSnapshot:
    """A snapshot from the columns of the statement `host_snapshot`."""
    peers, owners, claimants, has_unowned, next_due_ms, next_work_ms, *rest = row
    has_pairs, deployments, next_tick_ms, next_admission_ms, clock_ms, schema_version = rest
    if isinstance(owners, bytes):
        # A damaged name (invalid UTF-8) belongs to no host, and must not make the other names unreadable.
        owners = owners.decode(errors="replace")
    return HostSnapshot(
        tuple(Peer(HostId(host), beat, limit) for host, beat, limit in _PEERS.decode(peers)),
        frozenset(HostId(name) for names in (owners, claimants) for name in _NAMES.decode(names)),
        bool(has_unowned),
        next_due_ms,
        next_work_ms,
        bool(has_pairs),
        deployments,
        next_tick_ms,
        next_admission_ms,
        clock_ms,
        int(schema_version),
    )
