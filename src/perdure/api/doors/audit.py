"""The audit log: every request that changes something, with its actor, role and reason, and what became of it."""

from typing import Any, Final

import msgspec

from perdure.api.exchange import Exchange
from perdure.api.problems import Refusal
from perdure.core.errors import Denied, PerdureError
from perdure.core.ids import RunId
from perdure.store.access_table import NEWEST_RECORD, AuditRecord, record_id

ACCEPTED = "accepted"

ACT = "act"
"""The action of the route of acts: the record has the type of the act in its place."""


class AuditQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which records of the audit log."""

    after: str | None = None
    limit: int = 100
    actor: str | None = None
    action: str | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.limit <= 1000:
            raise ValueError(f"limit is {self.limit}: pass a number from 1 to 1000")


_RECORDS: Final = RunId("audit")
"""The address by which records are ordered."""


class AuditLog(msgspec.Struct, frozen=True):
    """Records, the newest first."""

    records: list[AuditRecord]
    cursor: str | None


async def record(exchange: Exchange, error: Exception | None) -> None:
    """Write what the request asked for, and what became of it. Requests without an action are not recorded."""
    action = exchange.endpoint.action
    if action is None:
        return
    body = exchange.body
    kind = getattr(body, "type", None)
    if kind is not None:
        action = str(kind) if action == ACT else f"{action}.{kind}"
    if getattr(body, "dry_run", False):
        return
    parts: dict[str, Any] = exchange.request.path_params
    outcome = ACCEPTED
    if isinstance(error, Denied):
        outcome = error.reason_code
    elif isinstance(error, PerdureError | Refusal):
        outcome = error.code
    elif error is not None:
        outcome = "internal"
    sources, caller = exchange.host.dispatcher.sources, exchange.caller
    await exchange.store.access.record(
        AuditRecord(
            # Records of this process sort in their order, within a millisecond too.
            id=record_id(sources.arrival(_RECORDS), sources.entropy(8)),
            at_ms=exchange.now_ms,
            actor=caller.name,
            role=caller.role,
            action=action,
            target="/".join(_storable(str(each)) for each in parts.values()),
            scope=exchange.acted_scope or caller.scope or "",
            reason=_storable(str(getattr(body, "reason", "") or getattr(body, "note", ""))),
            outcome=outcome,
        )
    )


def _storable(text: str) -> str:
    """Text that both databases can store, and of a bounded length."""
    return text.replace("\x00", "?").encode("utf-8", "replace").decode()[:1000]


async def show_log(exchange: Exchange) -> AuditLog:
    query: AuditQuery = exchange.query
    found = await exchange.store.access.records(
        query.after or NEWEST_RECORD, query.limit, query.actor, query.action
    )
    return AuditLog(found, found[-1].id if len(found) == query.limit else None)
