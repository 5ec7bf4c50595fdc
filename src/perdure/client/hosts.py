"""Which hosts of a store are alive, as this process sees it."""

import asyncio

import msgspec

from perdure.core.ids import HostId
from perdure.host.clock import steady_ms
from perdure.host.cluster.identity import is_dead, is_here
from perdure.store.operator_tables import HostRow
from perdure.store.store import Store

_LOOK_S = 0.1


class HostState(msgspec.Struct, frozen=True, kw_only=True):
    """A host, and whether it is alive: its process on this machine exists, or its heartbeat was seen to change."""

    host: HostId
    is_alive: bool
    queues: tuple[str, ...]
    started_at_ms: int | None
    open_runs: int
    claimed: int


async def host_list(store: Store, watch_ms: int | None = None) -> list[HostState]:
    """All hosts that have a row, own open runs or have claimed work.

    A host on this machine is judged at once. Others are watched until their heartbeat changes, at most for the time
    after which they count as dead, or for `watch_ms` if that is less.
    """
    rows = {row.host: row for row in await store.host_rows()}
    alive = {host: _known(row) for host, row in rows.items()}
    began_ms = steady_ms()
    while watched := [host for host, verdict in alive.items() if verdict is None]:
        await asyncio.sleep(_LOOK_S)
        now = {row.host: row.beat for row in await store.host_rows()}
        for host in watched:
            if now.get(host) is None:
                alive[host] = False
            elif now[host] != rows[host].beat:
                alive[host] = True
            elif steady_ms() - began_ms > _limit_ms(rows[host], watch_ms):
                alive[host] = False
    return [
        HostState(
            host=host,
            is_alive=bool(alive[host]),
            queues=row.queues,
            started_at_ms=row.started_at_ms,
            open_runs=row.open_runs,
            claimed=row.claimed,
        )
        for host, row in rows.items()
    ]


def _limit_ms(row: HostRow, watch_ms: int | None) -> int:
    return row.stale_after_ms if watch_ms is None else min(row.stale_after_ms, watch_ms)


def _known(row: HostRow) -> bool | None:
    """Whether the host is alive, if that is certain at once."""
    if row.beat is None or is_dead(row.host):
        return False
    return True if is_here(row.host) else None
