"""The queued work of a Postgres store."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, cast

from perdure.core.ids import HostId
from perdure.store.postgres.connections.heartbeat_connection import claim_columns
from perdure.store.rows.records import Claim
from perdure.store.rows.runs import claim_from, claims_in
from perdure.store.work_table import WorkTable


class PostgresWork(WorkTable):
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
        rows = await self._fetch(
            "claim_work", list(queues), now_ms, limit, token, host, now_ms + lease_ms
        )
        claims = map(claim_from, rows)
        return sorted(claims, key=lambda c: (-c.work.priority, c.work.run_id, c.work.step))

    async def renew_work(self, claims: Sequence[Claim], lease_until_ms: int) -> list[Claim]:
        rows = await self._fetch("renew_work", *claim_columns(claims), lease_until_ms)
        return claims_in(claims, rows)

    async def regain_work(
        self, host: HostId, claims: Sequence[Claim], lease_until_ms: int
    ) -> list[Claim]:
        same = [claim.work.guid for claim in claims], [claim.claims for claim in claims]
        values = *claim_columns(claims), *same, host, lease_until_ms
        return claims_in(claims, await self._fetch("regain_work", *values))

    async def return_work(self, host: HostId, now_ms: int) -> int:
        return await self._count("return_work", host, now_ms)

    async def return_claims(self, claims: Sequence[Claim], available_at_ms: int) -> None:
        await self._count("return_claims", *claim_columns(claims), available_at_ms)

    async def return_stopped(self, claims: Sequence[Claim], now_ms: int) -> None:
        payloads = [claim.work.payload for claim in claims]
        await self._count("return_stopped", *claim_columns(claims), now_ms, payloads)

    async def next_work(self, queues: Sequence[str]) -> int | None:
        ((at_ms,),) = await self._fetch("select_next_work", list(queues))
        return cast("int | None", at_ms)

    @abstractmethod
    async def _fetch(self, name: str, /, *values: Any) -> list[Any]: ...

    @abstractmethod
    async def _count(self, name: str, *values: Any) -> int: ...
