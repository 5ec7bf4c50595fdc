"""The SQLite store: a writer thread, a reader thread, and the committer in front of them.

A store in memory has neither thread: it has one connection, in the event loop's own thread.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, TypeVar, cast

import apsw

from perdure.core.books import Books
from perdure.core.errors import InputError, StoreClosed
from perdure.core.ids import Guid, HostId, RunId, guid_prefix
from perdure.core.journal.entry import Entry, erase
from perdure.core.journal.state import Status
from perdure.core.ledger import AccountId, message_account
from perdure.core.limits import MAX_SEQUENCE, MAX_TIME_MS
from perdure.core.messages import Message
from perdure.core.runs.description import QueuedWork
from perdure.core.streams.chunks import ChunkOrigin, StoredChunk
from perdure.store.commit.bundle import Bundle
from perdure.store.commit.committer import Committer
from perdure.store.commit.fence import Fence
from perdure.store.hints import OnHint
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
from perdure.store.sqlite.access import SqliteAccess
from perdure.store.sqlite.admission import SqliteAdmission
from perdure.store.sqlite.buses import SqliteBuses
from perdure.store.sqlite.connections.damage import (
    integrity_check,
    run_with_typed_damage,
    run_with_typed_errors,
)
from perdure.store.sqlite.connections.failures import typed_writes
from perdure.store.sqlite.connections.foreign import descriptors
from perdure.store.sqlite.connections.heartbeat_connection import (
    SqliteHeartbeatConnection,
    json_list,
    scope_values,
)
from perdure.store.sqlite.connections.inline import InlineConnection
from perdure.store.sqlite.connections.opening import (
    MEMORY,
    connect_first,
    connect_to_file,
    retry_while_locked,
)
from perdure.store.sqlite.connections.thread import ConnectionThread
from perdure.store.sqlite.connections.write_lock import ConnectionWorker, WriteLock
from perdure.store.sqlite.graphs import SqliteGraphs
from perdure.store.sqlite.group_writer import GroupWriter
from perdure.store.sqlite.hint_sockets import SqliteHints
from perdure.store.sqlite.lists import SqliteLists
from perdure.store.sqlite.operations import SqliteOperations
from perdure.store.sqlite.operator import SqliteOperator
from perdure.store.sqlite.reading import load, load_all, next_books
from perdure.store.sqlite.run_rows import select_run, take_runs
from perdure.store.sqlite.schedules import SqliteSchedules
from perdure.store.sqlite.transaction import SqliteTransaction
from perdure.store.sqlite.work_table import SqliteWork
from perdure.store.sqlite.writing import in_transaction
from perdure.store.statements import statements
from perdure.store.user_transaction import JoinedTransaction, time_limited

T = TypeVar("T")
_SQL = statements("sqlite")


class SqliteStore(SqliteGraphs, SqliteLists, SqliteOperator, SqliteWork):
    """Open with `SqliteStore.open`."""

    def __init__(self, path: str, writer: ConnectionWorker, reader: ConnectionWorker) -> None:
        self._path = path
        self._writer = writer
        self._reader = reader
        self._lock = WriteLock(writer)
        self._groups = GroupWriter(path, self._lock)
        self._committer = Committer(self._groups.write)
        self.submit = self._committer.submit
        self._closed = False
        self._closing = asyncio.Lock()
        self.buses = SqliteBuses(self._change_by, self._read)

    @classmethod
    async def open(cls, path: str, **how: bool) -> "SqliteStore":
        """`how` has the options of `connect_first`."""
        first_connection = partial(connect_first, path, **how)
        writer: ConnectionWorker
        reader: ConnectionWorker
        if path == MEMORY:
            reader = writer = InlineConnection(first_connection)
        else:
            writer = ConnectionThread(f"perdure-writer {path}", first_connection)
            reader = ConnectionThread(f"perdure-reader {path}", lambda: connect_to_file(path))
        try:
            await writer.open_to_write()
            if reader is not writer:
                await reader.open()
        except BaseException:
            await _close(reader, writer)
            raise
        return cls(path, writer, reader)

    @property
    def name(self) -> str:
        return f"sqlite:///{self._path}"

    @property
    def schedules(self) -> SqliteSchedules:
        return SqliteSchedules(self._change_by, self._read)

    @property
    def admission(self) -> SqliteAdmission:
        return SqliteAdmission(self._change_by, self._read)

    @property
    def access(self) -> SqliteAccess:
        return SqliteAccess(self._change_by, self._read)

    def operations(self, lock_timeout_s: float) -> SqliteOperations:
        return SqliteOperations(self._change_by, self._read, lock_timeout_s)

    async def close(self) -> None:
        async with self._closing:
            if not self._closed:
                self._closed = True
                await self._committer.close()
                await self._lock.close()
                await _close(self._reader, self._writer)

    def commit(self, bundle: Bundle) -> Awaitable[None]:
        return self._committer.commit(bundle)

    def transaction(self, limit_s: float) -> AbstractAsyncContextManager[SqliteTransaction]:
        self._require_open()
        return time_limited(SqliteTransaction(self._lock, limit_s))

    async def join(self, connection: object) -> JoinedTransaction:
        raise InputError(
            f"{self.name} can't join the transaction of {connection!r}",
            "use engine.transaction() alone: SQLite has one writer, and that is Perdure's",
        )

    async def claim_runs(
        self, owner: HostId, limit: int, programs: Sequence[str] | None = None
    ) -> list[Run]:
        require_storable_values(programs or ())
        named = None if programs is None else json_list(programs)
        return await self._take("claim_runs", owner=owner, limit=limit, programs=named)

    async def take_over(self, from_owner: HostId, owner: HostId, limit: int) -> list[Run]:
        return await self._take("take_over", from_owner=from_owner, owner=owner, limit=limit)

    async def take_run(self, run_id: RunId, from_owner: HostId | None, owner: HostId) -> Run | None:
        runs = await self._take("take_run", run_id=run_id, from_owner=from_owner, owner=owner)
        return runs[0] if runs else None

    async def _take(self, name: str, **values: Any) -> list[Run]:
        """Execute a statement that takes runs, in a transaction of its own; returns the runs."""
        require_storable_values(values.values())
        rows = await self._change_by(
            lambda c: in_transaction(c, lambda: take_runs(c, name, values))
        )
        return sorted(map(run_from, rows), key=lambda run: run.run_id)

    async def release_run(self, fence: Fence) -> bool:
        return bool(await self._count("release_run", run_id=fence.run_id, epoch=fence.epoch))

    async def release_runs(self, owner: HostId) -> int:
        return await self._count("release_runs", owner=owner)

    async def count_open(self, owner: HostId | None) -> int:
        ((count,),) = await self._select("count_open", owner=owner)
        return cast("int", count)

    async def count_open_of(self, owners: Sequence[HostId], most: int) -> dict[HostId, int]:
        require_storable_values(owners)
        rows = await self._select("count_open_of", owners=json_list(owners), most=most)
        return {HostId(owner): count for owner, count in rows}

    async def register_host(self, host: NewHost) -> None:
        require_storable_values(host.queues)
        await self._count(
            "register_host",
            host=host.host,
            stale_after_ms=host.stale_after_ms,
            queues=json_list(host.queues),
            started_at_ms=host.started_at_ms,
        )

    async def remove_host(self, host: HostId) -> None:
        await self._count("remove_host", host=host)

    async def clock_ms(self) -> int | None:
        return None

    async def host_snapshot(self, scope: HostScope) -> HostSnapshot:
        return snapshot_from((await self._select("host_snapshot", **scope_values(scope)))[0])

    @property
    def is_shared(self) -> bool:
        return self._path != MEMORY

    def require_known_schema(self, version: int) -> None:
        require_known(self._path, version, "sqlite")

    def heartbeat_connection(self) -> SqliteHeartbeatConnection | None:
        return SqliteHeartbeatConnection(self._path) if self.is_shared else None

    def hint_channel(self, host: HostId, on_hint: OnHint) -> SqliteHints | None:
        return SqliteHints(self._path, host, on_hint) if self.is_shared else None

    async def erase_payloads(self, run_id: RunId, first: int, end: int) -> int:
        def erase_all(connection: apsw.Connection) -> int:
            def all_of_them() -> int:
                where: dict[str, Any] = {"run_id": run_id, "first": first, "end": end}
                rows: list[Any] = connection.execute(_SQL["select_entries"], where).fetchall()
                sealed = [entry for entry in map(entry_from, rows) if entry.sealed is not None]
                for entry in sealed:
                    what: dict[str, Any] = {"run_id": run_id, "seq": entry.seq}
                    connection.execute(
                        _SQL["erase_payload"], what | {"digest": erase(entry).erased}
                    )
                return len(sealed)

            erased: int = in_transaction(connection, all_of_them)
            return erased

        require_storable_values([run_id, first, end])
        return await self._change_by(erase_all)

    async def run(self, run_id: RunId) -> Run | None:
        require_storable_values([run_id])
        rows = await self._read(lambda c: retry_while_locked(lambda: select_run(c, run_id)))
        return run_from(rows[0]) if rows else None

    async def run_by_key(self, scope: str, program: str, key: str) -> Run | None:
        rows = await self._select("select_run_by_key", scope=scope, program=program, key=key)
        return run_from(rows[0]) if rows else None

    async def key_holders(
        self, places: Sequence[tuple[str, str, str]]
    ) -> dict[tuple[str, str, str], RunId]:
        require_storable_values(places)
        rows = await self._select("select_key_holders", places=json_list(places))
        return {(scope, program, key): RunId(run_id) for scope, program, key, run_id in rows}

    async def chain_end(self, first: RunId) -> Run | None:
        rows = await self._select("select_chain_end", first=first)
        return run_from(rows[0]) if rows else None

    async def chain(self, first: RunId) -> list[Run]:
        return [run_from(row) for row in await self._select("select_chain", first=first)]

    async def taken_in_chain(self, first: RunId, guids: Sequence[Guid]) -> set[Guid]:
        accounts = {message_account(guid): guid for guid in guids}
        rows = await self._select(
            "select_chain_accounts", first=first, accounts=json_list(list(accounts))
        )
        return {accounts[row[0]] for row in rows}

    async def sent_before(self, first: RunId, guid: Guid) -> list[SentMessage]:
        account = message_account(guid)
        rows = await self._select("select_sent", first=first, guid=guid, account=account)
        return [SentMessage(run_id, payload, bool(is_taken)) for run_id, payload, is_taken in rows]

    async def published_in_chain(self, first: RunId) -> dict[str, bytes]:
        return dict(await self._select("select_chain_published", first=first))

    async def open_runs(
        self, owner: HostId | None, after: RunId | None = None, limit: int = 1000
    ) -> list[Run]:
        rows = await self._select("select_open_runs", owner=owner, after=after or "", limit=limit)
        return [run_from(row) for row in rows]

    async def open_ids(
        self, after: RunId | None, limit: int, programs: Sequence[str] | None = None
    ) -> list[RunId]:
        require_storable_values(programs or ())
        named = None if programs is None else json_list(programs)
        rows = await self._select("select_open_ids", after=after or "", limit=limit, programs=named)
        return [RunId(run_id) for (run_id,) in rows]

    async def entries(self, run_id: RunId, first: int = 0, end: int | None = None) -> list[Entry]:
        end = MAX_SEQUENCE if end is None else end
        rows = await self._select("select_entries", run_id=run_id, first=first, end=end)
        return [entry_from(row) for row in rows]

    async def grown(self, parts: Sequence[JournalPart]) -> dict[RunId, list[Entry]]:
        require_storable_values(part.run_id for part in parts)
        return journals_from(await self._select("select_grown", parts=json_list(parts)))

    async def load(self, run_ids: Sequence[RunId]) -> list[tuple[Run, list[Entry]]]:
        require_storable_values(run_ids)
        return await self._read(lambda c: retry_while_locked(lambda: load(c, run_ids)))

    async def runs(self, run_ids: Sequence[RunId]) -> list[Run]:
        require_storable_values(run_ids)
        return [run_from(row) for row in await self._select("select_runs", ids=json_list(run_ids))]

    async def progress(self, run_ids: Sequence[RunId]) -> list[Progress]:
        require_storable_values(run_ids)
        rows = await self._select("select_progress", ids=json_list(run_ids))
        return [progress_from(row) for row in rows]

    async def load_all(self, run_ids: Sequence[RunId]) -> list[StoredRun]:
        require_storable_values(run_ids)
        return await self._read(lambda c: retry_while_locked(lambda: load_all(c, run_ids)))

    async def balance(self, run_id: RunId, account: AccountId) -> int:
        rows = await self._select("select_balance", run_id=run_id, account=account)
        return rows[0][0] if rows else 0

    async def balances(self, run_id: RunId) -> dict[AccountId, int]:
        rows = await self._select("select_balances", run_id=run_id)
        return {AccountId(account): balance for account, balance in rows}

    async def due_messages(self, owner: HostId, now_ms: int, limit: int) -> list[Message]:
        rows = await self._select("select_due_messages", owner=owner, now_ms=now_ms, limit=limit)
        return [message_from(row) for row in rows]

    async def pending(self, owner: HostId, origins: Sequence[RunId], limit: int) -> list[Message]:
        names = json_list([guid_prefix(origin) for origin in origins])
        rows = await self._select("select_pending", owner=owner, origins=names, limit=limit)
        return [message_from(row) for row in rows]

    async def next_due(self, owner: HostId, until_ms: int = MAX_TIME_MS) -> int | None:
        rows = await self._select("select_next_due", owner=owner, until_ms=until_ms)
        return rows[0][0] if rows else None

    async def messages(self, run_id: RunId) -> list[tuple[Message, str, str | None]]:
        rows = await self._select("select_messages", run_id=run_id)
        return [(message_from(row[:7]), row[7], row[8]) for row in rows]

    async def act_messages(self, run_id: RunId) -> list[ActMessage]:
        return [ActMessage(*row) for row in await self._select("select_acts", run_id=run_id)]

    async def queued_work(self, run_id: RunId) -> list[QueuedWork]:
        return [QueuedWork(*row) for row in await self._select("select_queued_work", run_id=run_id)]

    async def statuses(self, run_ids: Sequence[RunId]) -> dict[RunId, Status]:
        require_storable_values(run_ids)
        rows = await self._select("select_statuses", run_ids=json_list(run_ids))
        return {RunId(run_id): Status(status) for run_id, status in rows}

    async def published(self, run_id: RunId) -> dict[str, bytes]:
        return dict(await self._select("select_published", run_id=run_id))

    async def streams(self, run_id: RunId) -> dict[str, int]:
        return dict(await self._select("select_streams", run_id=run_id))

    async def chunks(self, run_id: RunId, name: str, first: int, limit: int) -> list[StoredChunk]:
        rows = await self._select(
            "select_chunks", run_id=run_id, name=name, first=first, limit=limit
        )
        return [chunk_from(row) for row in rows]

    async def spans(self, run_id: RunId, name: str, end: int) -> list[tuple[ChunkOrigin, range]]:
        rows = await self._select("select_spans", run_id=run_id, name=name, end=end)
        return [span_from(row) for row in rows]

    async def check(self) -> list[str]:
        self._require_open()
        if self._path == MEMORY:
            return await self._read(integrity_check)
        # On a separate connection: the check reads the whole file, and other reads must not wait for it.
        checking = ConnectionThread(
            f"perdure-check {self._path}", lambda: connect_to_file(self._path)
        )
        try:
            await checking.open()
            return await checking.run(partial(run_with_typed_errors, self._path, integrity_check))
        finally:
            await _close(checking)

    async def books(self) -> AsyncIterator[Books]:
        after, ((last,),) = "", await self._select("select_last_run_id")
        while after < last:
            books = await self._read(partial(next_books, after=after))
            if books is None:
                return
            yield books
            after = books.run_id

    async def _read(self, job: Callable[[apsw.Connection], T]) -> T:
        self._require_open()
        return await self._reader.run(partial(run_with_typed_errors, self._path, job))

    async def _change_by(self, job: Callable[[apsw.Connection], T]) -> T:
        with typed_writes(self._path):
            return await self._lock.run(partial(run_with_typed_damage, self._path, job))

    def _require_open(self) -> None:
        if self._closed:
            raise StoreClosed("the store is closed", "use it before closing it")

    async def _select(self, name: str, /, **values: Any) -> list[Any]:
        require_storable_values(values.values())
        return await self._read(
            lambda c: retry_while_locked(lambda: c.execute(_SQL[name], values).fetchall())
        )

    async def _change(self, name: str, **values: Any) -> list[Any]:
        """Execute a writing statement in a transaction of its own; returns its rows."""
        require_storable_values(values.values())
        return await self._change_by(
            lambda c: in_transaction(c, lambda: c.execute(_SQL[name], values).fetchall())
        )

    async def _count(self, name: str, **values: Any) -> int:
        """Execute a writing statement in a transaction of its own; returns how many rows it changed."""

        def job(connection: apsw.Connection) -> int:
            def change() -> int:
                connection.execute(_SQL[name], values)
                return connection.changes()

            changed: int = in_transaction(connection, change)
            return changed

        require_storable_values(values.values())
        return await self._change_by(job)


async def _close(*workers: ConnectionWorker) -> None:
    for worker in workers:
        await worker.close()
    descriptors.forget_closed()
