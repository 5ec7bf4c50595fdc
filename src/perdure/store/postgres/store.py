"""The Postgres store: one connection that commits, a small pool for everything else."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, TypeVar, cast

import asyncpg
import msgspec

from perdure.core.books import Books
from perdure.core.errors import StoreClosed, StoreDamaged
from perdure.core.ids import Guid, HostId, RunId, guid_prefix
from perdure.core.journal.entry import Entry
from perdure.core.journal.state import Status
from perdure.core.ledger import AccountId, message_account
from perdure.core.limits import MAX_SEQUENCE, MAX_TIME_MS
from perdure.core.messages import Message
from perdure.core.runs.description import QueuedWork
from perdure.core.streams.chunks import ChunkOrigin, StoredChunk
from perdure.store.commit.bundle import Bundle
from perdure.store.commit.committer import Committer
from perdure.store.commit.fence import Fence
from perdure.store.commit.writer import BundleOutcomes, PendingWrites, write_async
from perdure.store.hints import OnHint
from perdure.store.postgres.access import PostgresAccess
from perdure.store.postgres.admission import PostgresAdmission
from perdure.store.postgres.buses import PostgresBuses
from perdure.store.postgres.connections.commit_connection import (
    FIRST_WAIT_S,
    LONGEST_WAIT_S,
    CommitConnection,
)
from perdure.store.postgres.connections.heartbeat_connection import (
    PostgresHeartbeatConnection,
    scope_values,
)
from perdure.store.postgres.connections.hint_listener import PostgresHints
from perdure.store.postgres.connections.opening import (
    CONFLICT,
    LOST,
    Address,
    close_connection,
    first_connection,
    migrate,
    require_lost,
    require_migrated,
    unavailable,
)
from perdure.store.postgres.connections.pool import Pool
from perdure.store.postgres.connections.sessions import joined_connection
from perdure.store.postgres.graphs import PostgresGraphs
from perdure.store.postgres.lists import PostgresLists
from perdure.store.postgres.operations import PostgresOperations
from perdure.store.postgres.operator import PostgresOperator
from perdure.store.postgres.ownership import OwnershipChange
from perdure.store.postgres.reading import load, load_all, next_books
from perdure.store.postgres.schedules import PostgresSchedules
from perdure.store.postgres.transaction import JoinedPostgresTransaction, PostgresTransaction
from perdure.store.postgres.work_table import PostgresWork
from perdure.store.postgres.writing import Connection
from perdure.store.rows.hosts import HostScope, HostSnapshot, NewHost, snapshot_from
from perdure.store.rows.records import (
    ActMessage,
    JournalPart,
    Progress,
    Run,
    SentMessage,
    StoredRun,
)
from perdure.store.rows.runs import (
    chunk_from,
    entry_from,
    journals_from,
    message_from,
    progress_from,
    run_from,
    span_from,
)
from perdure.store.rows.values import require_storable_values
from perdure.store.schema import require_known
from perdure.store.statements import statements
from perdure.store.user_transaction import time_limited

T = TypeVar("T")
_SQL = statements("postgres")

_POOL_SIZE = 4
_TRANSACTIONS = 8
"""Users' transactions open at the same time at most."""

_LOCK_TIMEOUT_MS = 50
"""How long a group waits for a lock. After that, a user's transaction probably holds it, and the group commits without
the bundles that need the lock."""

_RETRY_MS = 500
"""How long contended bundles wait for locks in one pass over all of them."""


_FORGOTTEN_AFTER_MS = 30 * 24 * 60 * 60 * 1000
"""Age at which recorded outcomes of transactions are deleted. A host asks for one until the server answers; no outage
is this long."""


class PostgresStore(PostgresGraphs, PostgresLists, PostgresOperator, PostgresWork):
    """Open with `PostgresStore.open`."""

    def __init__(self, address: Address, connection: Connection) -> None:
        self._address = address
        doubtful: set[Bundle] = set()
        self._commits = CommitConnection(address, doubtful, _LOCK_TIMEOUT_MS, connection)
        self._contended_commits = CommitConnection(address, doubtful, _LOCK_TIMEOUT_MS)
        self._idle: asyncio.LifoQueue[Connection | None] = asyncio.LifoQueue()
        """Open connections are on top: while one is free, no other one is opened."""
        for _ in range(_POOL_SIZE):
            self._idle.put_nowait(None)
        self._transactions = Pool(address, _TRANSACTIONS)
        self._committer = Committer(self._write, self._write_contended)
        self.submit = self._committer.submit
        self._closed = False
        self._closing = asyncio.Lock()
        self.buses = PostgresBuses(self._use)

    @classmethod
    async def open(
        cls, url: str, *, as_it_is: bool = False, is_moving: bool = False
    ) -> "PostgresStore":
        address = Address(url)

        async def prepare(connection: Connection) -> None:
            if is_moving:
                return
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

    @property
    def schedules(self) -> PostgresSchedules:
        return PostgresSchedules(self._use)

    @property
    def admission(self) -> PostgresAdmission:
        return PostgresAdmission(self._use)

    @property
    def access(self) -> PostgresAccess:
        return PostgresAccess(self._use)

    def operations(self, lock_timeout_s: float) -> PostgresOperations:
        return PostgresOperations(self._use, lock_timeout_s)

    async def close(self) -> None:
        async with self._closing:
            if not self._closed:
                self._closed = True
                self._commits.begin_closing()
                self._contended_commits.begin_closing()
                await self._close()

    async def _close(self) -> None:
        connections: list[Connection | None] = [*await self._transactions.close()]
        await self._committer.close()
        await self._commits.close()
        await self._contended_commits.close()
        connections += [await self._idle.get() for _ in range(_POOL_SIZE)]
        for connection in connections:
            if connection is not None:
                await close_connection(connection)

    def commit(self, bundle: Bundle) -> Awaitable[None]:
        return self._committer.commit(bundle)

    def transaction(self, limit_s: float) -> AbstractAsyncContextManager[PostgresTransaction]:
        self._require_open()
        return time_limited(PostgresTransaction(self._transactions, self._fetch, limit_s))

    async def join(self, connection: object) -> JoinedPostgresTransaction:
        return JoinedPostgresTransaction(await joined_connection(connection), self._fetch)

    def _write(self, bundles: Sequence[Bundle]) -> Awaitable[BundleOutcomes]:
        return write_async(PendingWrites(bundles), self._commits.apply)

    async def _write_contended(self, bundles: Sequence[Bundle]) -> BundleOutcomes:
        """Write contended bundles, each alone, on a connection of their own so that other groups don't wait."""
        self._contended_commits.lock_timeout_ms = max(_LOCK_TIMEOUT_MS, _RETRY_MS // len(bundles))
        return await write_async(PendingWrites(bundles, alone=True), self._contended_commits.apply)

    async def claim_runs(
        self, owner: HostId, limit: int, programs: Sequence[str] | None = None
    ) -> list[Run]:
        named = None if programs is None else list(programs)
        return await self._take("claim_runs", owner, limit, named)

    async def take_over(self, from_owner: HostId, owner: HostId, limit: int) -> list[Run]:
        return await self._take("take_over", from_owner, owner, limit)

    async def take_run(self, run_id: RunId, from_owner: HostId | None, owner: HostId) -> Run | None:
        runs = await self._take("take_run", run_id, from_owner, owner)
        return runs[0] if runs else None

    async def release_run(self, fence: Fence) -> bool:
        return bool(await self._count("release_run", fence.run_id, fence.epoch))

    async def release_runs(self, owner: HostId) -> int:
        return await self._count("release_runs", owner)

    async def count_open(self, owner: HostId | None) -> int:
        named = ("count_unowned",) if owner is None else ("count_open", owner)
        ((count,),) = await self._fetch(*named)
        return cast("int", count)

    async def count_open_of(self, owners: Sequence[HostId], most: int) -> dict[HostId, int]:
        rows = await self._fetch("count_open_of", list(owners), most)
        return {HostId(owner): count for owner, count in rows}

    async def register_host(self, host: NewHost) -> None:
        require_storable_values(host.queues)
        queues = msgspec.json.encode(host.queues).decode()
        values = host.host, host.stale_after_ms, queues, host.started_at_ms
        await self._count("register_host", *values)

    async def remove_host(self, host: HostId) -> None:
        await self._count("remove_host", host)

    async def clock_ms(self) -> int | None:
        ((clock_ms,),) = await self._fetch("select_clock")
        return cast("int", clock_ms)

    async def host_snapshot(self, scope: HostScope) -> HostSnapshot:
        return snapshot_from((await self._fetch("host_snapshot", *scope_values(scope)))[0])

    @property
    def is_shared(self) -> bool:
        return True

    def require_known_schema(self, version: int) -> None:
        require_known(self.name, version, "postgres")

    def heartbeat_connection(self) -> PostgresHeartbeatConnection:
        return PostgresHeartbeatConnection(self._address)

    def hint_channel(self, host: HostId, on_hint: OnHint) -> PostgresHints:
        return PostgresHints(self._address, host, on_hint)

    async def erase_payloads(self, run_id: RunId, first: int, end: int) -> int:
        return await self._count("erase_payloads", run_id, first, end)

    async def run(self, run_id: RunId) -> Run | None:
        rows = await self._fetch("select_run", run_id)
        return run_from(rows[0]) if rows else None

    async def run_by_key(self, scope: str, program: str, key: str) -> Run | None:
        rows = await self._fetch("select_run_by_key", scope, program, key)
        return run_from(rows[0]) if rows else None

    async def key_holders(
        self, places: Sequence[tuple[str, str, str]]
    ) -> dict[tuple[str, str, str], RunId]:
        columns = [list(column) for column in zip(*places, strict=True)] or [[], [], []]
        rows = await self._fetch("select_key_holders", *columns)
        return {(scope, program, key): RunId(run_id) for scope, program, key, run_id in rows}

    async def chain_end(self, first: RunId) -> Run | None:
        rows = await self._fetch("select_chain_end", first)
        return run_from(rows[0]) if rows else None

    async def chain(self, first: RunId) -> list[Run]:
        return [run_from(row) for row in await self._fetch("select_chain", first)]

    async def taken_in_chain(self, first: RunId, guids: Sequence[Guid]) -> set[Guid]:
        accounts = {message_account(guid): guid for guid in guids}
        rows = await self._fetch("select_chain_accounts", first, list(accounts))
        return {accounts[row[0]] for row in rows}

    async def sent_before(self, first: RunId, guid: Guid) -> list[SentMessage]:
        rows = await self._fetch("select_sent", first, guid, message_account(guid))
        return [SentMessage(*row) for row in rows]

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

    async def grown(self, parts: Sequence[JournalPart]) -> dict[RunId, list[Entry]]:
        runs, firsts, ends = ([part[at] for part in parts] for at in range(3))
        return journals_from(await self._fetch("select_grown", runs, firsts, ends))

    async def load(self, run_ids: Sequence[RunId]) -> list[tuple[Run, list[Entry]]]:
        require_storable_values(run_ids)
        return await self._use(partial(load, run_ids=list(run_ids)))

    async def runs(self, run_ids: Sequence[RunId]) -> list[Run]:
        return [run_from(row) for row in await self._fetch("select_runs", list(run_ids))]

    async def progress(self, run_ids: Sequence[RunId]) -> list[Progress]:
        rows = await self._fetch("select_progress", list(run_ids))
        return [progress_from(row) for row in rows]

    async def load_all(self, run_ids: Sequence[RunId]) -> list[StoredRun]:
        require_storable_values(run_ids)
        return await self._use(partial(load_all, run_ids=list(run_ids)))

    async def balance(self, run_id: RunId, account: AccountId) -> int:
        rows = await self._fetch("select_balance", run_id, account)
        return rows[0][0] if rows else 0

    async def balances(self, run_id: RunId) -> dict[AccountId, int]:
        rows = await self._fetch("select_balances", run_id)
        return {AccountId(account): balance for account, balance in rows}

    async def due_messages(self, owner: HostId, now_ms: int, limit: int) -> list[Message]:
        rows = await self._fetch("select_due_messages", owner, now_ms, limit)
        return [message_from(row) for row in rows]

    async def pending(self, owner: HostId, origins: Sequence[RunId], limit: int) -> list[Message]:
        names = [guid_prefix(origin) for origin in origins]
        rows = await self._fetch("select_pending", owner, names, limit)
        return [message_from(row) for row in rows]

    async def next_due(self, owner: HostId, until_ms: int = MAX_TIME_MS) -> int | None:
        rows = await self._fetch("select_next_due", owner, until_ms)
        return rows[0][0] if rows else None

    async def messages(self, run_id: RunId) -> list[tuple[Message, str, str | None]]:
        rows = await self._fetch("select_messages", run_id)
        return [(message_from(row[:7]), row[7], row[8]) for row in rows]

    async def act_messages(self, run_id: RunId) -> list[ActMessage]:
        return [ActMessage(*row) for row in await self._fetch("select_acts", run_id)]

    async def queued_work(self, run_id: RunId) -> list[QueuedWork]:
        return [QueuedWork(*row) for row in await self._fetch("select_queued_work", run_id)]

    async def statuses(self, run_ids: Sequence[RunId]) -> dict[RunId, Status]:
        rows = await self._fetch("select_statuses", list(run_ids))
        return {RunId(run_id): Status(status) for run_id, status in rows}

    async def published(self, run_id: RunId) -> dict[str, bytes]:
        return {row[0]: row[1] for row in await self._fetch("select_published", run_id)}

    async def streams(self, run_id: RunId) -> dict[str, int]:
        return {row[0]: row[1] for row in await self._fetch("select_streams", run_id)}

    async def chunks(self, run_id: RunId, name: str, first: int, limit: int) -> list[StoredChunk]:
        rows = await self._fetch("select_chunks", run_id, name, first, limit)
        return [chunk_from(row) for row in rows]

    async def spans(self, run_id: RunId, name: str, end: int) -> list[tuple[ChunkOrigin, range]]:
        return [span_from(row) for row in await self._fetch("select_spans", run_id, name, end)]

    async def check(self) -> list[str]:
        """Empty: a server with checksums checks pages as it reads them, and `books` reports the errors."""
        return []

    async def books(self) -> AsyncIterator[Books]:
        after, ((last,),) = "", await self._fetch("select_last_run_id")
        while after < last:
            books = await self._use(partial(next_books, after=after))
            if books is None:
                return
            yield books
            after = books.run_id

    async def _fetch(self, name: str, *values: Any) -> list[Any]:
        require_storable_values(values)
        return await self._use(lambda connection: connection.fetch(_SQL[name], *values))

    async def _take(self, name: str, *values: Any) -> list[Run]:
        require_storable_values(values)
        return await OwnershipChange(name, *values).decide(self._use)

    async def _count(self, name: str, *values: Any) -> int:
        require_storable_values(values)
        status = await self._use(lambda connection: connection.execute(_SQL[name], *values))
        return int(status.rpartition(" ")[2])

    def _require_open(self) -> None:
        if self._closed:
            raise StoreClosed("the store is closed", "use it before closing it")

    async def _use(self, job: Callable[[Connection], Awaitable[T]]) -> T:
        """Run `job` on a free connection, and again on a new one if the connection is lost.

        A change with an unknown outcome is repeated: every statement is written so that this is harmless (work that
        was claimed twice is available again when its lease ends).
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
            except (asyncpg.DataCorruptedError, asyncpg.IndexCorruptedError) as error:
                raise StoreDamaged(
                    f"{self.name} is damaged ({error})", "restore it from a backup"
                ) from error
            except asyncpg.PostgresError as error:
                raise unavailable(self.name, error) from error
            except asyncio.CancelledError:
                # The connection may still be in a transaction.
                if connection is not None:
                    connection.terminate()
                connection = None
                raise
            finally:
                self._idle.put_nowait(connection)
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 2, LONGEST_WAIT_S)
