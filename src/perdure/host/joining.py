"""What commits with a user's own rows: the runs that are started in a transaction, the messages sent in it.

Whoever starts a run or sends a signal looks for the current transaction here, and joins it.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from perdure.core.errors import InputError, NotCommitted, UnknownRun
from perdure.core.ids import Guid, RunId
from perdure.core.journal.events import ExecutionStarted
from perdure.core.messages import Message
from perdure.core.transactions import Row
from perdure.engine.runs import create_run
from perdure.host.batch import Batch, Start
from perdure.host.body import Body, Chunks
from perdure.host.host import Host
from perdure.store.bundle import Bundle
from perdure.store.records import Run, unborn
from perdure.store.rejections import run_exists
from perdure.store.transaction import JoinedTransaction, OpenTransaction, UserTransaction

_CURRENT: ContextVar["Joining | None"] = ContextVar("perdure_transaction", default=None)


class Statements:
    """A user's side of a transaction: statements, and no way to end it. Implements `Transaction`."""

    __slots__ = ("_rows",)

    def __init__(self, rows: UserTransaction) -> None:
        self._rows = rows

    async def execute(self, sql: str, *args: Any) -> int:
        return await self._rows.execute(sql, *args)

    async def fetch(self, sql: str, *args: Any) -> list[Row]:
        return await self._rows.fetch(sql, *args)

    async def fetch_one(self, sql: str, *args: Any) -> Row | None:
        return await self._rows.fetch_one(sql, *args)

    async def fetch_value(self, sql: str, *args: Any) -> Any:
        return await self._rows.fetch_value(sql, *args)


class Joining(ABC):
    """A transaction as the engine's own calls see it."""

    def __init__(self, host: Host, rows: UserTransaction) -> None:
        self.host = host
        self.statements = Statements(rows)
        self.is_left = False
        """Whether nobody can join it any more."""
        self._rows = rows
        self._started: dict[RunId, Start] = {}
        self._keys: dict[tuple[str, str, str], RunId] = {}
        """The keys of what was started here, in their scopes."""
        self._payloads: dict[Guid, bytes | None] = {}
        """What was sent here says."""
        self._looking = asyncio.Lock()
        """Held while a key is looked up and taken, so that of two who want it at once the other finds it taken."""

    @contextmanager
    def current(self) -> Iterator[None]:
        """Inside, what the engine is asked to do joins this transaction."""
        token = _CURRENT.set(self)
        try:
            yield
        finally:
            self.is_left = True
            _CURRENT.reset(token)

    async def start(self, start: Start) -> RunId:
        """Start a run with the commit. Raises `RunExists` if its key is taken, here or in the store."""
        self._rows.require_open()
        if start.key is None:
            return await self._begin(start)
        mine = start.scope, start.workflow.name, start.key
        async with self._looking:
            holder = self._keys.get(mine)
            if holder is None:
                found = await self._rows.run_by_key(*mine)
                holder = None if found is None else found.run_id
            if holder is not None:
                raise run_exists(start.row(holder, 0, None), holder)
            run_id = self._keys[mine] = await self._begin(start)
        return run_id

    async def _begin(self, start: Start) -> RunId:
        run_id = await self._start(start)
        self._started[run_id] = start
        return run_id

    async def arguments(self, run_id: RunId) -> bytes | None:
        """What a run was started with, as this transaction sees it; `None` if that is not known."""
        if run_id in self._started:
            return self._started[run_id].payload
        entry = await self._rows.first_entry(run_id)
        started = None if entry is None else entry.event
        return started.payload if isinstance(started, ExecutionStarted) else None

    async def end_of(self, run_id: RunId) -> Run:
        """The run that goes on for the one named, or has ended, as this transaction sees it."""
        self._rows.require_open()
        if run_id in self._started:
            return unborn(self._started[run_id].row(run_id, 0, None))
        run = await self._rows.run(run_id)
        if run is None:
            raise UnknownRun(f"there is no run {run_id!r}", "check the id and the store")
        return await self._rows.chain_end(run.origin) or run

    async def send(self, bundle: Bundle, message: Message | None) -> None:
        """Send what the bundle holds with the commit. `message` is what is to be delivered then; `None` if it is
        for whoever waits for it."""
        await self._send(bundle, message)
        for sent in bundle.messages:
            self._payloads.setdefault(sent.guid, sent.payload)

    def sent_before(self, guid: Guid) -> bytes | None:
        """What a message says that was sent here; `None` if it was not."""
        return self._payloads.get(guid)

    def has_started(self, run_id: RunId) -> bool:
        return run_id in self._started

    def not_committed(self, run_id: RunId) -> NotCommitted:
        """Why nothing can be told of a run that was started here."""
        return NotCommitted(
            f"run {run_id!r} is not committed yet, or was rolled back with its transaction",
            "ask when the transaction is committed",
        )

    @property
    @abstractmethod
    def may_be_committed(self) -> bool:
        """False as long as it certainly is not."""

    @abstractmethod
    async def _send(self, bundle: Bundle, message: Message | None) -> None: ...

    @abstractmethod
    async def _start(self, start: Start) -> RunId: ...


class OwnTransaction(Joining):
    """A transaction that this host commits. What it starts is in memory before, and goes on right after."""

    def __init__(self, host: Host, rows: OpenTransaction) -> None:
        super().__init__(host, rows)
        self.rows = rows
        self._is_committed = False
        self.deciding: asyncio.Future[Exception | None] | None = None
        """Its commit, once that is under way; ends when all that follows from it is done. Why it failed, if so."""
        self._batches: list[Batch] = []
        self._messages: list[Message] = []
        self._sent: list[Bundle] = []
        """What holds the messages, and published values."""
        self._has_mail = False
        """Whether any of it is for whoever waits for it."""

    async def _start(self, start: Start) -> RunId:
        batch = self.host.stage_start(start)
        # Nobody may take it out of memory: it is nowhere else.
        batch.run.in_flight += 1
        self._batches.append(batch)
        return batch.run.run_id

    async def _send(self, bundle: Bundle, message: Message | None) -> None:
        self.rows.require_open()
        self._sent.append(bundle)
        if message is None:
            self._has_mail = True
        else:
            self._messages.append(message)

    def publish(self, body: Body, name: str, value: object) -> None:
        """A value that a body publishes is as durable as what it writes."""
        payload = self.host.codec.encode(value)
        bundle = Bundle()
        bundle.publish(body.info.run_id, name, payload, self.host.sources.now_ms())
        self._sent.append(bundle)

    def chunks_of(self, body: Body) -> Chunks:
        """A body that lives here has no streams: what it appends would be there without what it writes."""
        raise InputError(
            f"transactional task {body.task.name!r} appends to a stream",
            "append in another task: chunks are durable at once, and these rows are not",
        )

    async def commit(self, turn: Batch | None = None) -> None:
        """Commits: the user's rows, all that joined them, and the turn of a run.

        To stop waiting does not take it back, nor stop what follows from it.
        """
        if turn is not None:
            turn.run.in_flight += 1
            self._batches.append(turn)
        self.deciding = asyncio.get_running_loop().create_future()
        self.host.spawn(self._decide(self.deciding))
        failure = await asyncio.shield(self.deciding)
        if failure is not None:
            raise failure

    async def commit_alone(self, bundle: Bundle | None) -> None:
        """Commits: the user's rows, all that joined them, and a bundle after which nothing is to be done."""
        if bundle is not None:
            self._sent.append(bundle)
        await self.commit()

    async def _decide(self, decided: asyncio.Future[Exception | None]) -> None:
        try:
            await self.rows.commit([*(batch.bundle for batch in self._batches), *self._sent])
        except Exception as failure:
            self._undo()
            decided.set_result(failure)
            return
        self._is_committed = True
        try:
            for batch in self._taken():
                self.host.settle(batch)
            for message in self._messages:
                self.host.on_message(message)
            if self._has_mail:
                self.host.on_hooks()
        finally:
            decided.set_result(None)

    @property
    def may_be_committed(self) -> bool:
        return self._is_committed

    def end(self) -> None:
        """What was not committed was rolled back: nothing of it stays in memory."""
        if self.deciding is None:
            self._undo()

    def _undo(self) -> None:
        for batch in self._taken():
            self.host.undo(batch)

    def _taken(self) -> list[Batch]:
        batches, self._batches = self._batches, []
        for batch in batches:
            batch.run.in_flight -= 1
        return batches


class UsersTransaction(Joining):
    """A transaction that the user commits, on a connection of the user's.

    When, and whether, is not known here: so what it starts belongs to no host, until one claims it.
    """

    def __init__(self, host: Host, rows: JoinedTransaction) -> None:
        super().__init__(host, rows)
        self._joined = rows

    @property
    def may_be_committed(self) -> bool:
        return self.is_left

    async def _start(self, start: Start) -> RunId:
        host, run_id, bundle = self.host, self.host.staging.new_run_id(), Bundle()
        new = start.row(run_id, host.sources.now_ms(), None)
        create_run(bundle, new, [start.event(run_id)], host.sources)
        await self._joined.write(bundle)
        return run_id

    async def _send(self, bundle: Bundle, message: Message | None) -> None:  # noqa: ARG002 - nobody knows when
        await self._joined.write(bundle)


def innermost() -> Joining | None:
    """The transaction that the calling code is in, whosever it is."""
    return _CURRENT.get()


def current(host: Host) -> Joining | None:
    """The transaction of this host's store that the calling code is in."""
    joined = innermost()
    return None if joined is None or joined.is_left or joined.host is not host else joined
