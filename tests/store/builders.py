"""Runs that tests drive against a store, and reads and changes of tests behind its back."""

import os
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, Final

import apsw
import msgspec

from perdure.core.errors import PerdureError
from perdure.core.ids import Guid, HostId, RunId, StepId, message_guid, new_run_id
from perdure.core.journal import events as e
from perdure.core.journal.entry import NONCE_BYTES, genesis
from perdure.core.journal.invariants import violations
from perdure.core.journal.journal import Appended, Journal
from perdure.core.journal.postings import effect_of
from perdure.core.ledger import (
    CLOSED,
    SPAWNED,
    WORK_DONE,
    AccountId,
    message_account,
    settle,
)
from perdure.core.messages import Message, Work
from perdure.store.commit.bundle import Bundle
from perdure.store.commit.fence import Fence
from perdure.store.commit.graph_index import GraphIndex
from perdure.store.postgres.store import PostgresStore
from perdure.store.rows.records import NewRun
from perdure.store.sqlite.store import SqliteStore
from perdure.store.store import Store

NOW: Final = 1_700_000_000_000
HOST: Final = HostId("host-a")
OTHER_HOST: Final = HostId("host-b")


def some_run_id(at_ms: int = NOW) -> RunId:
    return new_run_id(at_ms, os.urandom(10))


class Driven:
    """A run as its owner has it in memory: journal and fence, and bundles made from them."""

    def __init__(
        self, *, owner: HostId | None = HOST, key: str | None = None, run_id: RunId | None = None
    ) -> None:
        self.run_id = some_run_id() if run_id is None else run_id
        self.journal = Journal(self.run_id)
        self.fence = Fence(self.run_id, 0)
        self.new = NewRun(self.run_id, "checkout", NOW, version="1", digest="d1", key=key)
        self.new = msgspec.structs.replace(self.new, owner=owner)
        self.number = 0

    @property
    def step_id(self) -> StepId:
        return StepId(f"root.{self.number}")

    def guid(self, *parts: str) -> Guid:
        return message_guid(self.run_id, *parts)

    def append(self, *events: e.Event, at_ms: int = NOW) -> Appended:
        return self.journal.append(events, at_ms, os.urandom(NONCE_BYTES * len(events)))

    def start(self, **changes: Any) -> Bundle:
        """The run's first bundle; `changes` are to its row."""
        bundle = Bundle()
        run = msgspec.structs.replace(self.new, **changes)
        self.fence = bundle.create_run(run, self.append(self.first_event(run)))
        return bundle

    def first_event(self, run: NewRun) -> e.ExecutionStarted:
        return e.ExecutionStarted(
            *(run.program, run.digest, "00" * 32, run.version),
            idempotency_key=self.new.key,
            payload=b"{}",
        )

    def appending(self, *events: e.Event) -> Bundle:
        bundle = Bundle()
        bundle.append(self.fence, self.append(*events))
        return bundle

    def first_step(self) -> Bundle:
        return self.appending(*self._enter_next())

    def step(self) -> Bundle:
        """A warm step: the result of one, and the intent of the next."""
        return self.appending(self._completed(), e.ExecutionResumed(), *self._enter_next())

    def finish(self) -> Bundle:
        return self.appending(
            self._completed(), e.ExecutionResumed(), e.ExecutionCompleted(released=1, payload=b"42")
        )

    def spawn(self, *children: Message, threshold: int = 0) -> tuple[Bundle, Guid]:
        """Step 2 of a message: settle its obligation and send its children."""
        guid = self.guid("spawning", os.urandom(4).hex())
        account = message_account(guid)
        settlement = settle(self.journal.state.semaphore, len(children), threshold)
        digits = SPAWNED + CLOSED * settlement.closed
        bundle = Bundle()
        work = self.append(e.Posted("work", (e.Posting(account, WORK_DONE + 1),)))
        bundle.append(self.fence, work)
        spawned = self.append(e.Posted("spawn", (e.Posting(account, digits),), settlement.delta))
        bundle.append(self.fence, spawned)
        for child in children:
            bundle.enqueue(child)
        return bundle, guid

    def message(self, *parts: str, due_at_ms: int = NOW, arrival: int = 1) -> Message:
        return Message(
            self.run_id, self.guid(*parts), "signal", due_at_ms, arrival, StepId("root.1"), b"\0hi"
        )

    def work(
        self, step: str = "root.9", *, queue: str = "gpu", priority: int = 0, at_ms: int = NOW
    ) -> Work:
        guid = self.guid("result", step)
        return Work(self.run_id, StepId(step), guid, queue, at_ms, priority, b"in")

    async def reload(self, store: Store) -> "Driven":
        """The same run from the store, under a new fence of the epoch that it has now."""
        run = await store.run(self.run_id)
        assert run is not None
        again = Driven(run_id=self.run_id, owner=run.owner)
        again.journal.replay(await store.entries(self.run_id))
        assert (again.journal.seq, again.journal.head) == (run.seq, run.head)
        again.fence = Fence(self.run_id, run.epoch)
        again.number = len(again.journal.state.scheduled)
        return again

    def _enter_next(self) -> Sequence[e.Event]:
        self.number += 1
        return (
            e.InvokeScheduled(self.step_id, "charge", payload=b"[1]"),
            e.ExecutionAwaiting((self.step_id,)),
            e.InvokeStarted(self.step_id, 1),
        )

    def _completed(self) -> e.InvokeCompleted:
        return e.InvokeCompleted(self.step_id, 1, payload=b"[2]")


def sending(*messages: Message) -> Bundle:
    bundle = Bundle()
    for message in messages:
        bundle.enqueue(message)
    return bundle


def together(*bundles: Bundle) -> Bundle:
    """One bundle of the parts of several."""
    whole = Bundle()
    for bundle in bundles:
        for part in set(Bundle.__struct_fields__) - {"has_more", "index"}:
            setattr(whole, part, [*getattr(whole, part), *getattr(bundle, part)])
        if bundle.index is not None:
            whole.index = whole.index or GraphIndex()
            whole.index.follow(bundle.index)
        whole.has_more |= bundle.has_more
    return whole


async def begun(store: Store, **fields: Any) -> Driven:
    """A run that is in the store and waits for its first step."""
    run = Driven(**fields)
    await store.commit(together(run.start(), run.first_step()))
    return run


async def assert_books_balance(store: Store) -> None:
    """The invariants hold, the postings sum to the balances, and the hash chain is complete."""
    async for books in store.books():
        assert violations(books.entries) == []
        balances: dict[AccountId, int] = {}
        semaphore, head = 0, genesis(books.run_id)
        for seq, entry in enumerate(books.entries):
            assert (entry.seq, entry.prev) == (seq, head)
            postings, delta = effect_of(entry.event)
            for account, increment in postings:
                balances[account] = balances.get(account, 0) + increment
            semaphore += delta
            head = entry.hash
        assert books.balances == balances
        assert books.ending is not None
        assert (books.ending.seq, books.ending.head) == (len(books.entries), head)
        assert books.ending.semaphore == semaphore


def assert_typed(error: PerdureError, code: str, *words: str) -> None:
    """The error has its stable code, the value, and a remedy."""
    assert error.code == code
    for word in words:
        assert word in error.what
    assert error.remedy
    assert str(error) == f"{error.what}: {error.remedy}"


TABLES: Final = (
    "meta",
    "run",
    "event",
    "ledger",
    "message",
    "work",
    "parked_step",
    "published",
    "stream",
    "chunk",
    "readiness",
    "inbox",
    "hook",
    "program",
    "host",
    "operation",
    "operation_log",
    "schedule",
    "tick",
    "pending",
    "limit_key",
    "limit_setting",
    "bus",
    "publication",
    "dead_letter",
    "retained",
    *("token", "audit"),
)


async def raw(store: Store, sql: str) -> list[tuple[Any, ...]]:
    """Run a statement behind the store's back; `{}` precedes each table's name."""
    if isinstance(store, SqliteStore):

        def job(connection: apsw.Connection) -> list[tuple[Any, ...]]:
            return connection.execute(sql.format("perdure_")).fetchall()

        return await store._writer.run(job)
    assert isinstance(store, PostgresStore)
    rows = await store._use(lambda connection: connection.fetch(sql.format("perdure.")))
    return [tuple(row) for row in rows]


async def contents(store: Store) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every table."""
    tables = {table: await raw(store, f"SELECT * FROM {{}}{table}") for table in TABLES}
    return {table: sorted(rows, key=repr) for table, rows in tables.items()}


class Meter:
    """The statements that a store's committing connection executes from now on; repetitions in a row count once.

    The driver of Postgres does not report COPY, by which larger groups append their events.
    """

    def __init__(self) -> None:
        self.statements: list[str] = []

    @property
    def commits(self) -> int:
        """Transactions that committed, and statements that are a transaction of their own."""
        return sum(
            sql.startswith(("COMMIT", "WITH fit AS", "WITH born AS")) for sql in self.statements
        )

    @classmethod
    async def of(cls, store: Store) -> "Meter":
        meter = cls()
        if isinstance(store, SqliteStore):

            def trace(event: dict[str, Any]) -> None:
                # The native writer runs a statement once for each of its rows.
                if not meter.statements or meter.statements[-1] != event["sql"]:
                    meter.statements.append(event["sql"])

            await store._writer.run(lambda c: c.trace_v2(apsw.SQLITE_TRACE_STMT, trace))
            return meter
        assert isinstance(store, PostgresStore)
        assert store._commits.connection is not None
        store._commits.connection.add_query_logger(
            lambda record: meter.statements.append(record.query)
        )
        return meter


def digest_of_file(path: str) -> bytes:
    with open(path, "rb") as file:
        return sha256(file.read()).digest()
