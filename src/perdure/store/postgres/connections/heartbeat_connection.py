"""Heartbeats on Postgres: a separate connection, in the event loop of the heartbeat's thread."""

import asyncio
from collections.abc import Sequence
from typing import Any

import asyncpg

from perdure.core.errors import StoreUnavailable
from perdure.store.postgres.connections.opening import CONFLICT, LOST, Address
from perdure.store.postgres.writing import Connection
from perdure.store.rows.hosts import HostScope, HostSnapshot, snapshot_from
from perdure.store.rows.records import Claim
from perdure.store.rows.runs import claims_in
from perdure.store.rows.values import require_storable_values
from perdure.store.statements import heartbeat_statement, statements

_SQL = statements("postgres")


class PostgresHeartbeatConnection:
    """Connects with the first heartbeat, and again after each loss."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._runner: asyncio.Runner | None = None
        self._connection: Connection | None = None

    def beat(self, scope: HostScope, limit_s: float) -> HostSnapshot | None:
        rows = self._run(heartbeat_statement("postgres"), scope_values(scope), limit_s)
        return snapshot_from(rows[0]) if rows else None

    def renew(self, claims: Sequence[Claim], lease_until_ms: int, limit_s: float) -> list[Claim]:
        values = *claim_columns(claims), lease_until_ms
        return claims_in(claims, self._run(_SQL["renew_work"], values, limit_s))

    def _run(self, sql: str, values: Sequence[Any], limit_s: float) -> Sequence[Any]:
        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner.run(self._fetch(sql, values, limit_s))

    async def _fetch(self, sql: str, values: Sequence[Any], limit_s: float) -> Sequence[Any]:
        try:
            async with asyncio.timeout(limit_s):
                if self._connection is None or self._connection.is_closed():
                    self._connection = await self._address.connect()
                return await self._connection.fetch(sql, *values)
        except (*LOST, *CONFLICT, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            self._drop()
            raise StoreUnavailable(
                f"{self._address.name} did not accept a heartbeat ({type(error).__name__}: {error})",
                "check that the server runs and can be reached",
            ) from error

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()

    def close(self) -> None:
        if self._runner is not None:
            self._runner.run(self._close())
            self._runner.close()
            self._runner = None

    async def _close(self) -> None:
        try:
            if self._connection is not None:
                await self._connection.close(timeout=1)
        except (*LOST, asyncpg.PostgresError, asyncpg.InterfaceError):
            self._drop()
        self._connection = None


def scope_values(scope: HostScope) -> tuple[Any, ...]:
    """The arguments of `host_snapshot` and `beat`."""
    values = scope.host, list(scope.queues), list(scope.programs), scope.until_ms
    require_storable_values(values)
    return values


def claim_columns(claims: Sequence[Claim]) -> tuple[list[str], list[str], list[str]]:
    """Run, step and token of each claim, column by column."""
    return (
        [claim.work.run_id for claim in claims],
        [claim.work.step for claim in claims],
        [claim.token for claim in claims],
    )
