"""Heartbeats on Postgres: a connection of their own, in an event loop of their own thread."""

import asyncio
from collections.abc import Sequence
from typing import Any

import asyncpg

from perdure.core.errors import StoreUnavailable
from perdure.store.hosts import Glance, Scope, glance_from
from perdure.store.postgres.opening import CONFLICT, LOST, Address
from perdure.store.postgres.writing import Connection
from perdure.store.statements import beat
from perdure.store.values import require_storable


class PostgresLifeline:
    """Connects with the first beat, and again after each loss."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._runner: asyncio.Runner | None = None
        self._connection: Connection | None = None

    def beat(self, scope: Scope, limit_s: float) -> Glance | None:
        values = scope_values(scope)
        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner.run(self._beat(values, limit_s))

    async def _beat(self, values: Sequence[Any], limit_s: float) -> Glance | None:
        try:
            async with asyncio.timeout(limit_s):
                if self._connection is None or self._connection.is_closed():
                    self._connection = await self._address.connect()
                row = await self._connection.fetchrow(beat("postgres"), *values)
        except (*LOST, *CONFLICT, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            self._drop()
            raise StoreUnavailable(
                f"{self._address.name} took no heartbeat ({type(error).__name__}: {error})",
                "see that the server runs and can be reached",
            ) from error
        return None if row is None else glance_from(row)

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()

    def close(self) -> None:
        if self._runner is not None:
            self._runner.run(self._let_go())
            self._runner.close()
            self._runner = None

    async def _let_go(self) -> None:
        try:
            if self._connection is not None:
                await self._connection.close(timeout=1)
        except (*LOST, asyncpg.PostgresError, asyncpg.InterfaceError):
            self._drop()
        self._connection = None


def scope_values(scope: Scope) -> tuple[Any, ...]:
    """The arguments of `glance` and `beat`."""
    values = scope.host, list(scope.queues), list(scope.programs), scope.until_ms
    require_storable(values)
    return values
