"""Queued work: the tasks that hosts claim from queues."""

from collections.abc import Sequence
from typing import Protocol

from perdure.core.ids import HostId
from perdure.store.rows.records import Claim


class WorkTable(Protocol):
    """The queued work of a store. Times are milliseconds, and always arguments."""

    async def claim_work(
        self,
        host: HostId,
        queues: Sequence[str],
        token: str,
        now_ms: int,
        lease_ms: int,
        limit: int,
    ) -> list[Claim]:
        """Commits: a token and a lease on the most urgent tasks that are due, of each queue an equal share as far as it
        has work. Of queues that can't share equally, the first ones get more.

        Two hosts never hold the same task, unless the first one's lease has ended. Claiming such a task increases its
        number of claims, except when the same host claims it again.
        """
        ...

    async def renew_work(self, claims: Sequence[Claim], lease_until_ms: int) -> list[Claim]:
        """Commits: a longer lease. Returns the claims that still hold."""
        ...

    async def regain_work(
        self, host: HostId, claims: Sequence[Claim], lease_until_ms: int
    ) -> list[Claim]:
        """Commits: this host holds claims again that were returned because it was considered dead.

        Skips tasks that another host has claimed since, unless that host returned them unstarted. Returns the claims
        that hold now.
        """
        ...

    async def return_work(self, host: HostId, now_ms: int) -> int:
        """Commits: a host's claimed tasks are due again, for any host. Returns how many."""
        ...

    async def return_claims(self, claims: Sequence[Claim], available_at_ms: int) -> None:
        """Commits: these unstarted tasks are due at that time, under no token, and the claims don't count.

        Skips claims that no longer hold.
        """
        ...

    async def return_stopped(self, claims: Sequence[Claim], now_ms: int) -> None:
        """Commits: these tasks are due, under no token, with the payloads given here.

        Skips claims that no longer hold.
        """
        ...

    async def next_work(self, queues: Sequence[str]) -> int | None:
        """The earliest time at which a task of these queues is available or its lease ends; `None` without tasks."""
        ...
