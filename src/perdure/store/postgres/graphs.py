"""The graph tables of a Postgres store."""

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar, cast

import msgspec

from perdure.core.messages import Message
from perdure.store.graph_tables import MAX_MATCHES, GraphQueries, require_digest, require_version
from perdure.store.postgres.writing import Connection, transaction
from perdure.store.rows.records import NewProgram
from perdure.store.rows.runs import message_from
from perdure.store.rows.values import require_storable_values
from perdure.store.statements import statements

T = TypeVar("T")
_SQL = statements("postgres_graphs")


class PostgresGraphs(GraphQueries):
    """The graph tables of a store."""

    async def match_hooks(self, now_ms: int, limit: int = MAX_MATCHES) -> list[Message]:
        moved = map(
            message_from, await self._fetch_graph_rows("match_hooks", now_ms=now_ms, limit=limit)
        )
        return sorted(moved, key=lambda message: (message.arrival, message.guid))

    async def activate_program(self, name: str, version: str) -> None:
        async def activate(connection: Connection) -> None:
            async with transaction(connection):
                known = await connection.fetch(_SQL["lock_versions"], name)
                require_version(name, version, [row[0] for row in known])
                await connection.execute(_SQL["deactivate_program"], name, version)
                await connection.execute(_SQL["activate_program"], name, version)

        require_storable_values([name, version])
        await self._use(activate)

    async def _deploy(self, programs: Sequence[NewProgram], at_ms: int) -> None:
        async def deploy(connection: Connection) -> None:
            async with transaction(connection):
                for program in programs:
                    values = msgspec.structs.astuple(program)
                    await connection.execute(_SQL["deploy_program"], *values, at_ms)
                    digest = await connection.fetchval(_SQL["select_digest"], *values[:2])
                    require_digest(program, cast("str", digest))

        await self._use(deploy)

    async def _fetch_graph_rows(self, name: str, /, **values: Any) -> list[Any]:
        require_storable_values(values.values())
        return await self._use(lambda connection: connection.fetch(_SQL[name], *values.values()))

    @abstractmethod
    async def _use(self, job: Callable[[Connection], Awaitable[T]]) -> T: ...
