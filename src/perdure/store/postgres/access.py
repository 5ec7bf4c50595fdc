"""Tokens and the audit log in a Postgres store."""

from collections.abc import Sequence
from typing import Any

from perdure.store.access_table import AccessQueries
from perdure.store.postgres.operations import UseConnection
from perdure.store.rows.values import require_storable_values
from perdure.store.statements import statements

_SQL = statements("postgres_access")


class PostgresAccess(AccessQueries):
    """Each statement is a transaction of its own."""

    def __init__(self, use: UseConnection) -> None:
        self._use = use

    async def _write(self, name: str, values: dict[str, Any]) -> Sequence[Any]:
        return await self._fetch(name, values)

    async def _fetch(self, name: str, values: dict[str, Any]) -> Sequence[Any]:
        require_storable_values(values.values())
        given = tuple(values.values())
        return await self._use(lambda connection: connection.fetch(_SQL[name], *given))
