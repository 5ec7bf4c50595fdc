"""Tokens and the audit log in a SQLite store, on the store's connections."""

from collections.abc import Sequence
from typing import Any, cast

import apsw

from perdure.store.access_table import AccessQueries
from perdure.store.rows.values import require_storable_values
from perdure.store.sqlite.connections.opening import retry_while_locked
from perdure.store.sqlite.operations import RunJob
from perdure.store.sqlite.writing import in_transaction
from perdure.store.statements import statements

_SQL = statements("sqlite_access")


class SqliteAccess(AccessQueries):
    """`change` runs a job on the writing connection, `read` on a reading one."""

    def __init__(self, change: RunJob, read: RunJob) -> None:
        self._change = change
        self._read = read

    async def _write(self, name: str, values: dict[str, Any]) -> Sequence[Any]:
        require_storable_values(values.values())

        def job(connection: apsw.Connection) -> Sequence[Any]:
            return connection.execute(_SQL[name], values).fetchall()

        return await self._change(
            lambda connection: cast(
                "Sequence[Any]", in_transaction(connection, lambda: job(connection))
            )
        )

    async def _fetch(self, name: str, values: dict[str, Any]) -> Sequence[Any]:
        require_storable_values(values.values())

        def job(connection: apsw.Connection) -> Sequence[Any]:
            return retry_while_locked(lambda: connection.execute(_SQL[name], values).fetchall())

        return await self._read(job)
