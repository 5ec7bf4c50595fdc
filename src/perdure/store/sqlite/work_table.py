"""The queued work of a SQLite store."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import apsw

from perdure.core.ids import HostId
from perdure.store.rows.records import Claim
from perdure.store.rows.runs import claim_from, claims_in
from perdure.store.rows.values import require_storable_values
from perdure.store.sqlite.connections.bulk_statements import execute_rows
from perdure.store.sqlite.connections.heartbeat_connection import claim_values, json_list
from perdure.store.sqlite.work import claim_work
from perdure.store.sqlite.writing import in_transaction
from perdure.store.statements import statements
from perdure.store.work_table import WorkTable

T = TypeVar("T")
_SQL = statements("sqlite")


class SqliteWork(WorkTable):
    """The queued work of a store."""

    async def claim_work(
        self,
        host: HostId,
        queues: Sequence[str],
        token: str,
        now_ms: int,
        lease_ms: int,
        limit: int,
    ) -> list[Claim]:
        values = {
            "host": host,
            "token": token,
            "now_ms": now_ms,
            "lease_until_ms": now_ms + lease_ms,
        }
        require_storable_values([*queues, *values.values()])
        rows = await self._change_by(
            lambda c: in_transaction(c, lambda: claim_work(c, queues, limit, values))
        )
        claims = map(claim_from, rows)
        return sorted(claims, key=lambda c: (-c.work.priority, c.work.run_id, c.work.step))

    async def renew_work(self, claims: Sequence[Claim], lease_until_ms: int) -> list[Claim]:
        require_storable_values([lease_until_ms])
        rows = await self._change(
            "renew_work", **claim_values(claims), lease_until_ms=lease_until_ms
        )
        return claims_in(claims, rows)

    async def regain_work(
        self, host: HostId, claims: Sequence[Claim], lease_until_ms: int
    ) -> list[Claim]:
        require_storable_values([host, lease_until_ms])
        values = claim_values(claims)
        rows = await self._change("regain_work", host=host, **values, lease_until_ms=lease_until_ms)
        return claims_in(claims, rows)

    async def return_work(self, host: HostId, now_ms: int) -> int:
        return await self._count("return_work", host=host, now_ms=now_ms)

    async def return_claims(self, claims: Sequence[Claim], available_at_ms: int) -> None:
        rows = [(c.work.run_id, c.work.step, c.token, available_at_ms) for c in claims]
        require_storable_values([available_at_ms])
        await self._give_back("return_claims", rows)

    async def return_stopped(self, claims: Sequence[Claim], now_ms: int) -> None:
        rows = [(c.work.run_id, c.work.step, c.token, now_ms, c.work.payload) for c in claims]
        require_storable_values([now_ms])
        await self._give_back("return_stopped", rows)

    async def _give_back(self, name: str, rows: Sequence[tuple[Any, ...]]) -> None:
        def give_back(connection: apsw.Connection) -> None:
            if rows:
                in_transaction(connection, lambda: execute_rows(connection, _SQL[name], rows))

        require_storable_values(rows)
        await self._change_by(give_back)

    async def next_work(self, queues: Sequence[str]) -> int | None:
        require_storable_values(queues)
        ((at_ms,),) = await self._select("select_next_work", queues=json_list(queues))
        return cast("int | None", at_ms)

    @abstractmethod
    async def _change_by(self, job: Callable[[apsw.Connection], T]) -> T: ...

    @abstractmethod
    async def _select(self, name: str, /, **values: Any) -> list[Any]: ...

    @abstractmethod
    async def _change(self, name: str, **values: Any) -> list[Any]: ...

    @abstractmethod
    async def _count(self, name: str, **values: Any) -> int: ...
