"""The Postgres store: one connection that commits, a small pool for everything else."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, TypeVar, cast

import asyncpg
import msgspec

from perdure.core.books import Books
from perdure.core.errors import StoreClosed
from perdure.core.ids import Guid, HostId, RunId
from perdure.core.journal.entry import Entry
from perdure.core.ledger import AccountId, message_account
from perdure.core.limits import MAX_SEQUENCE, MAX_TIME_MS
from perdure.core.messages import Message
from perdure.core.streams.chunks import Origin, StoredChunk
from perdure.store.bundle import Bundle
from perdure.store.committer import Committer, Decided
from perdure.store.hosts import Glance, NewHost, Scope, glance_from
from perdure.store.postgres.commits import FIRST_WAIT_S, LONGEST_WAIT_S, Commits
from perdure.store.postgres.graphs import PostgresGraphs
from perdure.store.postgres.lifeline import PostgresLifeline, scope_values
from perdure.store.postgres.opening import (
    CONFLICT,
    LOST,
    Address,
    first_connection,
    let_go,
    migrate,
    require_lost,
    require_migrated,
    unavailable,
)
from perdure.store.postgres.operations import PostgresOperations
from perdure.store.postgres.pool import Pool
from perdure.store.postgres.reading import load, next_books
from perdure.store.postgres.taking import Taking
from perdure.store.postgres.transaction import JoinedPostgresTransaction, PostgresTransaction
from perdure.store.postgres.writing import Connection
from perdure.store.primitives import Fence
from perdure.store.records import Claim, Run, Sent
from perdure.store.rowforms import (
    chunk_from,
    claim_from,
    entry_from,
    message_from,
    run_from,
    span_from,
)
from perdure.store.statements import statements
from perdure.store.transaction import limited
from perdure.store.values import require_storable
from perdure.store.writer import Outcomes, Writing, write_async

T = TypeVar("T")
_SQL = statements("postgres")

_POOL_SIZE = 4
_TRANSACTIONS = 8
"""Users' transactions that are open at the same time."""

_PATIENCE_MS = 50
"""How long a group waits for a lock. Beyond it somebody else's transaction is open, and the group goes without the
bundles that have to wait for that."""

_PASS_MS = 500
"""How long those wait for their locks in one pass over all of them."""


_FORGOTTEN_AFTER_MS = 30 * 24 * 60 * 60 * 1000
"""Outcomes of transactions that are older are nobody's: who asks for one does so until the server answers, and no
outage is this long."""


class PostgresStore(PostgresGraphs):
    """Open with `PostgresStore.open`."""

    def __init__(self, address: Address, connection: Connection) -> None:
        self._address = address
        doubtful: set[Bundle] = set()
        self._commits = Commits(address, doubtful, _PATIENCE_MS, connection)
        self._apart = Commits(address, doubtful, _PATIENCE_MS)
        self._idle: asyncio.Queue[Connection | None] = asyncio.Queue()
        for _ in range(_POOL_SIZE):
            self._idle.put_nowait(None)
        self._transactions = Pool(address, _TRANSACTIONS)
        self._committer = Committer(self._write, self._write_apart)
        self._closed = False
        self._closing = asyncio.Lock()

    @classmethod
    async def open(cls, url: str, *, as_it_is: bool = False) -> "PostgresStore":
        address = Address(url)

        async def prepare(connection: Connection) -> None:
            if as_it_is:
                await require_migrated(connection, address.name)
            else:
                await migrate(connection, address.name)
                await connection.execute(_SQL["delete_old_outcomes"], _FORGOTTEN_AFTER_MS)

        connection = await first_connection(address, prepare)
        return cls(address, connection)

    @property
    def name(self) -> str:
        return self._address.name

    def operations(self, lock_timeout_s: float) -> PostgresOperations:
        return PostgresOperations(self._use, lock_timeout_s)

    async def close(self) -> None:
        async with self._closing:
            if not self._closed:
                self._closed = True
                self._commits.hurry()
                self._apart.hurry()
                await self._close()

    async def _close(self) -> None:
        connections: list[Connection | None] = [*await self._transactions.close()]
        await self._committer.close()
        await self._commits.close()
        await self._apart.close()
        connections += [await self._idle.get() for _ in range(_POOL_SIZE)]
        for connection in connections:
            if connection is not None:
                await let_go(connection)

    def commit(self, bundle: Bundle) -> Awaitable[None]:
        return self._committer.commit(bundle)

    def submit(self, bundle: Bundle, decided: Decided) -> None:
        self._committer.submit(bundle, decided)

    def transaction(self, limit_s: float) -> AbstractAsyncContextManager[PostgresTransaction]:
        self._require_open()
        return limited(PostgresTransaction(self._transactions, self._fetch, limit_s))

    def join(self, connection: object) -> JoinedPostgresTransaction:
        return JoinedPostgresTransaction(connection, self._fetch)

    def _write(self, bundles: Sequence[Bundle]) -> Awaitable[Outcomes]:
        return write_async(Writing(bundles), self._commits.apply)

    async def _write_apart(self, bundles: Sequence[Bundle]) -> Outcomes:
        """The same for bundles that were set aside, each alone, on a connection that nobody else waits for."""
        self._apart.patience_ms = max(_PATIENCE_MS, _PASS_MS // len(bundles))
        return await write_async(Writing(bundles, alone=True), self._apart.apply)

    async def claim_runs(
        self, owner: HostId, limit: int, programs: Sequence[str] | None = None
    ) -> list[Run]:
        named = None if programs is None else list(programs)
        return await self._take("claim_runs", owner, limit, named)

    async def take_over(self, from_owner: HostId, owner: HostId, limit: int) -> list[Run]:
        return await self._take("take_over", from_owner, owner, limit)

    async def release_run(self, fence: Fence) -> bool:
        return bool(await self._count("release_run", fence.run_id, fence.epoch))

    async def release_runs(self, owner: HostId) -> int:
        return await self._count("release_runs", owner)

    async def count_open(self, owner: HostId | None) -> int:
        named = ("count_unowned",) if owner is None else ("count_open", owner)
        ((count,),) = await self._fetch(*named)
        return cast("int", count)

    async def register_host(self, host: NewHost) -> None:
        require_storable(host.queues)
        queues = msgspec.json.encode(host.queues).decode()
        values = host.host, host.stale_after_ms, queues, host.started_at_ms
        await self._count("register_host", *values)

    async def remove_host(self, host: HostId) -> None:
        await self._count("remove_host", host)

    async def glance(self, scope: Scope) -> Glance:
        return glance_from((await self._fetch("glance", *scope_values(scope)))[0])

    def lifeline(self) -> PostgresLifeline:
        return PostgresLifeline(self._address)

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
        rows = await self._fetch("renew_work", *_claim_columns(claims), lease_until_ms)
        held = {(row[0], row[1]) for row in rows}
        return [claim for claim in claims if (claim.work.run_id, claim.work.step) in held]

    async def return_work(self, host: HostId, now_ms: int) -> int:
        return await self._count("return_work", host, now_ms)

    async def return_claims(self, claims: Sequence[Claim], available_at_ms: int) -> None:
        await self._count("return_claims", *_claim_columns(claims), available_at_ms)

    async def return_stopped(self, claims: Sequence[Claim], now_ms: int) -> None:
        payloads = [claim.work.payload for claim in claims]
        await self._count("return_stopped", *_claim_columns(claims), now_ms, payloads)

    async def next_work(self, queues: Sequence[str]) -> int | None:
        ((at_ms,),) = await self._fetch("select_next_work", list(queues))
        return cast("int | None", at_ms)

    async def erase_payloads(self, run_id: RunId, first: int, end: int) -> int:
        return await self._count("erase_payloads", run_id, first, end)

    async def run(self, run_id: RunId) -> Run | None:
        rows = await self._fetch("select_run", run_id)
        return run_from(rows[0]) if rows else None

    async def run_by_key(self, scope: str, program: str, key: str) -> Run | None:
        rows = await self._fetch("select_run_by_key", scope, program, key)
        return run_from(rows[0]) if rows else None

    async def chain_end(self, first: RunId) -> Run | None:
        rows = await self._fetch("select_chain_end", first)
        return run_from(rows[0]) if rows else None

    async def chain(self, first: RunId) -> list[Run]:
        return [run_from(row) for row in await self._fetch("select_chain", first)]

    async def taken_in_chain(self, first: RunId, guids: Sequence[Guid]) -> set[Guid]:
        accounts = {message_account(guid): guid for guid in guids}
        rows = await self._fetch("select_chain_accounts", first, list(accounts))
        return {accounts[row[0]] for row in rows}

    async def sent_before(self, first: RunId, guid: Guid) -> list[Sent]:
        rows = await self._fetch("select_sent", first, guid, message_account(guid))
        return [Sent(*row) for row in rows]

    async def published_in_chain(self, first: RunId) -> dict[str, bytes]:
        return {row[0]: row[1] for row in await self._fetch("select_chain_published", first)}

    async def open_runs(
        self, owner: HostId | None, after: RunId | None = None, limit: int = 1000
    ) -> list[Run]:
        if owner is None:
            rows = await self._fetch("select_unowned_runs", after or "", limit)
        else:
            rows = await self._fetch("select_open_runs", after or "", limit, owner)
        return [run_from(row) for row in rows]

    async def open_ids(
        self, after: RunId | None, limit: int, programs: Sequence[str] | None = None
    ) -> list[RunId]:
        named = None if programs is None else list(programs)
        rows = await self._fetch("select_open_ids", after or "", limit, named)
        return [RunId(row[0]) for row in rows]

    async def entries(self, run_id: RunId, first: int = 0, end: int | None = None) -> list[Entry]:
        end = MAX_SEQUENCE if end is None else end
        return [entry_from(row) for row in await self._fetch("select_entries", run_id, first, end)]

    async def load(self, run_ids: Sequence[RunId]) -> list[tuple[Run, list[Entry]]]:
        require_storable(run_ids)
        return await self._use(partial(load, run_ids=list(run_ids)))

    async def balance(self, run_id: RunId, account: AccountId) -> int:
        rows = await self._fetch("select_balance", run_id, account)
        return rows[0][0] if rows else 0

    async def balances(self, run_id: RunId) -> dict[AccountId, int]:
        rows = await self._fetch("select_balances", run_id)
        return {AccountId(account): balance for account, balance in rows}

    async def due_messages(self, owner: HostId, now_ms: int, limit: int) -> list[Message]:
        rows = await self._fetch("select_due_messages", owner, now_ms, limit)
        return [message_from(row) for row in rows]

    async def next_due(self, owner: HostId, until_ms: int = MAX_TIME_MS) -> int | None:
        rows = await self._fetch("select_next_due", owner, until_ms)
        return rows[0][0] if rows else None

    async def messages(self, run_id: RunId) -> list[tuple[Message, str, str | None]]:
        rows = await self._fetch("select_messages", run_id)
        return [(message_from(row[:7]), row[7], row[8]) for row in rows]

    async def published(self, run_id: RunId) -> dict[str, bytes]:
        return {row[0]: row[1] for row in await self._fetch("select_published", run_id)}

    async def streams(self, run_id: RunId) -> dict[str, int]:
        return {row[0]: row[1] for row in await self._fetch("select_streams", run_id)}

    async def chunks(self, run_id: RunId, name: str, first: int, limit: int) -> list[StoredChunk]:
        rows = await self._fetch("select_chunks", run_id, name, first, limit)
        return [chunk_from(row) for row in rows]

    async def spans(self, run_id: RunId, name: str, end: int) -> list[tuple[Origin, range]]:
        return [span_from(row) for row in await self._fetch("select_spans", run_id, name, end)]

    async def books(self) -> AsyncIterator[Books]:
        after, ((last,),) = "", await self._fetch("select_last_run_id")
        while after < last:
            books = await self._use(partial(next_books, after=after))
            if books is None:
                return
            yield books
            after = books.run_id

    async def _fetch(self, name: str, *values: Any) -> list[Any]:
        require_storable(values)
        return await self._use(lambda connection: connection.fetch(_SQL[name], *values))

    async def _take(self, name: str, *values: Any) -> list[Run]:
        require_storable(values)
        return await Taking(name, *values).decide(self._use)

    async def _count(self, name: str, *values: Any) -> int:
        require_storable(values)
        status = await self._use(lambda connection: connection.execute(_SQL[name], *values))
        return int(status.rpartition(" ")[2])

    def _require_open(self) -> None:
        if self._closed:
            raise StoreClosed("the store is closed", "use it before closing it")

    async def _use(self, job: Callable[[Connection], Awaitable[T]]) -> T:
        """Run `job` on a free connection, again on a new one if that is lost.

        A change whose outcome is unknown is made again: each is written so that this is harmless
        (work that was claimed twice comes back when its lease ends).
        """
        wait_s = FIRST_WAIT_S
        while True:
            self._require_open()
            connection = await self._idle.get()
            try:
                if connection is None or connection.is_closed():
                    connection = await self._address.connect()
                return await job(connection)
            except CONFLICT:
                pass
            except (*LOST, asyncpg.InterfaceError) as error:
                require_lost(error, connection)
                if connection is not None:
                    connection.terminate()
                connection = None
            except asyncpg.PostgresError as error:
                raise unavailable(self.name, error) from error
            except asyncio.CancelledError:
                # Whoever asked went away in the middle: the connection may be in a transaction yet.
                if connection is not None:
                    connection.terminate()
                connection = None
                raise
            finally:
                self._idle.put_nowait(connection)
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 2, LONGEST_WAIT_S)


def _claim_columns(claims: Sequence[Claim]) -> tuple[list[str], list[str], list[str]]:
    return (
        [claim.work.run_id for claim in claims],
        [claim.work.step for claim in claims],
        [claim.token for claim in claims],
    )
