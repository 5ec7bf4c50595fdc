"""What belongs to the whole store: queues, hosts, alerts, operations, SQL, and what this server is."""

from importlib.metadata import version
from typing import Any

import msgspec

from perdure.api.exchange import Exchange
from perdure.api.problems import Refusal
from perdure.client.buses import BusInfo
from perdure.client.hosts import HostState, host_list
from perdure.client.limits import LimitInfo
from perdure.core.ids import HostId
from perdure.core.journal.events import ActType
from perdure.core.runs.authority import PERMISSIONS, ROLES, Permission
from perdure.host.cluster.identity import is_dead, is_here
from perdure.store.operator_tables import HostRow, QueueRow

WATCH_MS = 5000


class ServerInfo(msgspec.Struct, frozen=True):
    """What answers here. `hosts`: whether this process also executes runs."""

    perdure: str
    api: str
    store: str
    hosts: bool


class CallerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Who sends the request, and what they may do. A `scope` of `null` is every scope."""

    name: str
    role: str
    scope: str | None
    expires_at_ms: int | None
    acts: list[ActType]
    permissions: list[Permission]


class Queues(msgspec.Struct, frozen=True):
    """The queues of the store."""

    queues: list[QueueRow]


class LimitList(msgspec.Struct, frozen=True):
    """The limits of programs, in each scope and for each key."""

    limits: list[LimitInfo]


class BusList(msgspec.Struct, frozen=True):
    """The event buses of the store, and how far each is behind."""

    buses: list[BusInfo]


class HostsQuery(msgspec.Struct, frozen=True, kw_only=True):
    """With `watch`, hosts on other machines are watched for a heartbeat, for up to five seconds."""

    watch: bool = False


class ShownHost(msgspec.Struct, frozen=True, kw_only=True):
    """A host. `is_alive` is `null` if it is on another machine and was not watched."""

    host: HostId
    is_alive: bool | None
    queues: tuple[str, ...]
    started_at_ms: int | None
    beat: int | None
    stale_after_ms: int
    open_runs: int
    claimed: int


class Hosts(msgspec.Struct, frozen=True):
    """The hosts that have a row, own open runs or have claimed work."""

    hosts: list[ShownHost]


class AlertCounts(msgspec.Struct, frozen=True):
    """How often each alert was raised in this process since it started."""

    counts: dict[str, int]


class SqlQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A query with parameters `$1`, `$2` and so on. It ends after `timeout` seconds."""

    query: str
    args: list[bool | int | float | str | None] = []
    limit: int = 1000
    timeout: float = 10


class ShownOperation(msgspec.Struct, frozen=True, kw_only=True):
    """An operation of several processes."""

    id: str
    is_backup: bool
    ledger: dict[str, Any]


class OperationIds(msgspec.Struct, frozen=True):
    """The current operations, and those in the backups; oldest first."""

    current: list[str]
    backups: list[str]


async def server_info(exchange: Exchange) -> ServerInfo:
    engine = exchange.engine
    return ServerInfo(version("perdure"), "v1", exchange.store.name, engine.hosts)


async def who_am_i(exchange: Exchange) -> CallerInfo:
    caller = exchange.caller
    return CallerInfo(
        name=caller.name,
        role=caller.role,
        scope=caller.scope,
        expires_at_ms=caller.expires_at_ms,
        acts=sorted(ROLES.get(caller.role, ())),
        permissions=sorted(PERMISSIONS.get(caller.role, ())),
    )


async def queues(exchange: Exchange) -> Queues:
    return Queues(await exchange.store.queue_rows(exchange.now_ms))


async def limits(exchange: Exchange) -> LimitList:
    return LimitList(await exchange.engine.limits.list())


async def buses(exchange: Exchange) -> BusList:
    return BusList(await exchange.engine.buses.all())


async def hosts(exchange: Exchange) -> Hosts:
    rows = await exchange.store.host_rows()
    watched: dict[HostId, HostState] = {}
    if exchange.query.watch:
        watched = {each.host: each for each in await host_list(exchange.store, WATCH_MS)}
    return Hosts([_shown(row, watched.get(row.host)) for row in rows])


def _shown(row: HostRow, state: HostState | None) -> ShownHost:
    is_alive: bool | None = True if is_here(row.host) else None
    if row.beat is None or is_dead(row.host):
        is_alive = False
    if state is not None:
        is_alive = state.is_alive
    return ShownHost(
        host=row.host,
        is_alive=is_alive,
        queues=row.queues,
        started_at_ms=row.started_at_ms,
        beat=row.beat,
        stale_after_ms=row.stale_after_ms,
        open_runs=row.open_runs,
        claimed=row.claimed,
    )


async def alerts(exchange: Exchange) -> AlertCounts:
    return AlertCounts(exchange.engine.alerts())


async def sql(exchange: Exchange) -> Any:
    body: SqlQuery = exchange.body
    rows = await exchange.engine.sql(body.query, *body.args, limit=body.limit, timeout=body.timeout)
    plain = [tuple(map(_plain, row)) for row in rows.rows]
    return {"columns": rows.columns, "rows": plain, "is_complete": rows.is_complete}


def _plain(value: Any) -> Any:
    """Bytes as hex: base64 would look like any other text."""
    return value.hex() if isinstance(value, bytes) else value


async def operations(exchange: Exchange) -> OperationIds:
    table = exchange.store.operations(WATCH_MS / 1000)
    return OperationIds(await table.ids(backups=False), await table.ids(backups=True))


async def operation(exchange: Exchange) -> ShownOperation:
    table = exchange.store.operations(WATCH_MS / 1000)
    name = exchange.part("operation")
    for is_backup in (False, True):
        found = await table.load(name, backups=is_backup)
        if found is not None:
            return ShownOperation(id=name, is_backup=is_backup, ledger=msgspec.to_builtins(found))
    raise Refusal(
        404, "unknown-operation", f"there is no operation {name!r:.200}", "see /v1/operations"
    )
