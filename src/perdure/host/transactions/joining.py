"""Engine writes that commit with a user's own rows: runs started and messages sent inside a transaction.

Calls that start a run or send a message look up the current transaction here, and join it.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from perdure.core.errors import InputError, NotCommitted, UnknownRun
from perdure.core.ids import Guid, RunId
from perdure.core.journal.events import ExecutionStarted
from perdure.core.messages import Message
from perdure.core.transactions import Row
from perdure.engine.runs.warm import create_run
from perdure.host.runs.batch import Batch, RunStart
from perdure.host.runs.dispatcher import Dispatcher
from perdure.host.tasks.attempt import Attempt, Chunks
from perdure.host.tasks.exposure import encode_sent
from perdure.host.tasks.requests import TaskRequests
from perdure.store.commit.bundle import Bundle
from perdure.store.commit.rejections import run_exists
from perdure.store.process import OwnProcess
from perdure.store.rows.records import Run, run_from_new
from perdure.store.user_transaction import JoinedTransaction, OpenTransaction, UserTransaction

T = TypeVar("T")

_CURRENT: ContextVar["JoinedWrites | None"] = ContextVar("perdure_transaction", default=None)


class Statements:
    """The user's view of a transaction: statements, but no commit or rollback. Implements `Transaction`."""

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

    async def adopt(self, connection: T) -> T:
        return await self._rows.adopt(connection)


class JoinedWrites(ABC):
    """A transaction that calls of the engine join."""

    def __init__(self, dispatcher: Dispatcher, rows: UserTransaction) -> None:
        self.dispatcher = dispatcher
        self.statements = Statements(rows)
        self.is_left = False
        """Whether the block has ended, so that no call can join any more."""
        self._rows = rows
        self._started: dict[RunId, RunStart] = {}
        self._keys: dict[tuple[str, str, str], RunId] = {}
        """The runs started in this transaction, by (scope, program, key)."""
        self._payloads: dict[Guid, bytes | None] = {}
        """Payloads of messages sent in this transaction, by GUID."""
        self._key_lock = asyncio.Lock()
        """Held while a key is looked up and taken: of two concurrent starts with one key, the second finds it taken."""

    @property
    def process(self) -> OwnProcess:
        return self.dispatcher.executor.process

    @contextmanager
    def current(self) -> Iterator[None]:
        """Engine calls inside the block join this transaction."""
        token = _CURRENT.set(self)
        try:
            yield
        finally:
            self.is_left = True
            _CURRENT.reset(token)

    async def start(self, start: RunStart) -> RunId:
        """Start a run with the commit. Raises `RunExists` if its key is taken, in this transaction or in the store."""
        self._rows.require_open()
        if start.key is None:
            return await self._begin(start)
        mine = start.scope, start.workflow.name, start.key
        async with self._key_lock:
            holder = await self.holder_of(*mine)
            if holder is not None and holder != start.replaces:
                raise run_exists(start.row(holder, 0, None), holder)
            run_id = self._keys[mine] = await self._begin(start)
        return run_id

    async def holder_of(self, scope: str, program: str, key: str) -> RunId | None:
        """The run that holds a key, as this transaction sees it."""
        self._rows.require_open()
        mine = self._keys.get((scope, program, key))
        if mine is not None:
            return mine
        found = await self._rows.run_by_key(scope, program, key)
        return None if found is None else found.run_id

    async def _begin(self, start: RunStart) -> RunId:
        run_id = await self._start(start)
        self._started[run_id] = start
        return run_id

    async def arguments(self, run_id: RunId) -> bytes | None:
        """The encoded arguments of a run, as this transaction sees it; `None` if they are unknown."""
        if run_id in self._started:
            return self._started[run_id].payload
        entry = await self._rows.first_entry(run_id)
        started = None if entry is None else entry.event
        return started.payload if isinstance(started, ExecutionStarted) else None

    async def end_of(self, run_id: RunId) -> Run:
        """The last run of the chain of this run, open or closed, as this transaction sees it."""
        self._rows.require_open()
        if run_id in self._started:
            return run_from_new(self._started[run_id].row(run_id, 0, None))
        run = await self._rows.run(run_id)
        if run is None:
            raise UnknownRun(f"there is no run {run_id!r}", "check the id and the store")
        return await self._rows.chain_end(run.origin) or run

    async def send(self, bundle: Bundle, message: Message | None) -> None:
        """Send the messages of the bundle with the commit. `message` is delivered after it; it is `None` for a signal
        to topic and key, which is matched to a hook first."""
        await self._send(bundle, message)
        for sent in bundle.messages:
            self._payloads.setdefault(sent.guid, sent.payload)

    def sent_before(self, guid: Guid) -> bytes | None:
        """The payload of a message sent in this transaction; `None` if it was not."""
        return self._payloads.get(guid)

    def has_started(self, run_id: RunId) -> bool:
        return run_id in self._started

    def not_committed(self, run_id: RunId) -> NotCommitted:
        """The error for a caller that reads a run started in this transaction."""
        return NotCommitted(
            f"run {run_id!r} is not committed yet, or was rolled back with its transaction",
            "ask when the transaction is committed",
        )

    @property
    @abstractmethod
    def may_be_committed(self) -> bool:
        """False while the transaction is certainly not committed."""

    @abstractmethod
    async def _send(self, bundle: Bundle, message: Message | None) -> None: ...

    @abstractmethod
    async def _start(self, start: RunStart) -> RunId: ...


class OwnTransaction(JoinedWrites):
    """A transaction that this host commits. Its runs are in memory before the commit, and advance after it."""

    def __init__(self, dispatcher: Dispatcher, rows: OpenTransaction) -> None:
        super().__init__(dispatcher, rows)
        self.rows = rows
        self._is_committed = False
        self.deciding: asyncio.Future[Exception | None] | None = None
        """The commit, once begun: its failure, or `None`. Done only after the batches and messages are handled."""
        self._batches: list[Batch] = []
        self._messages: list[Message] = []
        self._sent: list[Bundle] = []
        """Bundles with messages and published values."""
        self._has_unmatched_signals = False
        """Whether a signal to topic and key was sent, which is to be matched to a hook."""

    async def _start(self, start: RunStart) -> RunId:
        batch = self.dispatcher.stage_start(start)
        # Pinned, because it exists in memory only: an eviction would lose it.
        batch.run.pin()
        self._batches.append(batch)
        return batch.run.run_id

    async def _send(self, bundle: Bundle, message: Message | None) -> None:
        self.rows.require_open()
        self._sent.append(bundle)
        if message is None:
            self._has_unmatched_signals = True
        else:
            self._messages.append(message)

    def publish(self, attempt: Attempt, name: str, value: object) -> None:
        """Publish a value of the attempt, with the commit of its rows."""
        payload = encode_sent(
            *(self.dispatcher.context.task_codec, attempt, name, value),
            lambda: f"value {name!r} published by {attempt.text}",
        )
        bundle = Bundle()
        bundle.publish(attempt.info.run_id, name, payload, self.dispatcher.sources.stamp())
        self._sent.append(bundle)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self.dispatcher.executor.loop

    @property
    def requests(self) -> TaskRequests:
        return self.dispatcher.executor.requests

    def chunks_of(self, attempt: Attempt) -> Chunks:
        """Refuses streams: chunks would be durable even if the rows of the attempt are rolled back."""
        raise InputError(
            f"transactional task {attempt.task.name!r} appends to a stream",
            "append in another task: chunks are durable at once, and the rows of this task are not",
        )

    async def commit(self, batch: Batch | None = None) -> None:
        """Commits: the user's rows, all joined writes, and the batch of a run.

        Cancelling the caller neither revokes the commit nor stops what follows it.
        """
        if batch is None:
            await self.rows.flush()
        else:
            batch.run.pin()
            self._batches.append(batch)
        self.deciding = asyncio.get_running_loop().create_future()
        self.dispatcher.context.spawn(self._commit(self.deciding))
        failure = await asyncio.shield(self.deciding)
        if failure is not None:
            raise failure

    async def commit_alone(self, bundle: Bundle | None) -> None:
        """Commits: the user's rows, all joined writes, and a bundle that needs no handling afterwards."""
        if bundle is not None:
            self._sent.append(bundle)
        await self.commit()

    async def _commit(self, decided: asyncio.Future[Exception | None]) -> None:
        try:
            await self.rows.commit([*(batch.bundle for batch in self._batches), *self._sent])
        except Exception as failure:
            self._undo()
            decided.set_result(failure)
            return
        self._is_committed = True
        try:
            for batch in self._taken():
                self.dispatcher.settle(batch)
            for message in self._messages:
                self.dispatcher.context.listener.message_sent(message)
            if self._has_unmatched_signals:
                self.dispatcher.context.listener.hooks_changed()
        finally:
            decided.set_result(None)

    @property
    def may_be_committed(self) -> bool:
        return self._is_committed

    def end(self) -> None:
        """If the transaction was not committed, drop its runs from memory: it was rolled back."""
        if self.deciding is None:
            self._undo()

    def _undo(self) -> None:
        for batch in self._taken():
            self.dispatcher.undo(batch)

    def _taken(self) -> list[Batch]:
        batches, self._batches = self._batches, []
        for batch in batches:
            batch.run.unpin()
        return batches


class UserCommittedTransaction(JoinedWrites):
    """A transaction that the user commits, on a connection of the user's own.

    The host does not learn when, or whether, it commits. So runs that it starts are unowned until a host claims them.
    """

    def __init__(self, dispatcher: Dispatcher, rows: JoinedTransaction) -> None:
        super().__init__(dispatcher, rows)
        self._joined = rows

    @property
    def may_be_committed(self) -> bool:
        return self.is_left

    async def _start(self, start: RunStart) -> RunId:
        dispatcher, bundle = self.dispatcher, Bundle()
        run_id = start.run_id or dispatcher.staging.new_run_id()
        now_ms = dispatcher.sources.now_ms()
        enrolments = dispatcher.context.enrolments.of(run_id, start.workflow.name, now_ms)
        new = start.row(run_id, now_ms, None, enrolments)
        create_run(bundle, new, [start.event(run_id)], dispatcher.sources)
        await self._joined.write(bundle)
        return run_id

    async def _send(self, bundle: Bundle, message: Message | None) -> None:  # noqa: ARG002 - polling finds it
        await self._joined.write(bundle)


def innermost() -> JoinedWrites | None:
    """The transaction that the calling code is in, of any engine."""
    return _CURRENT.get()


def current(dispatcher: Dispatcher) -> JoinedWrites | None:
    """The transaction of this host that the calling code is in, if calls can still join it."""
    joined = innermost()
    return (
        None if joined is None or joined.is_left or joined.dispatcher is not dispatcher else joined
    )
