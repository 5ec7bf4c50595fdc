"""The store: the interface that both databases implement.

A run's own writes go through bundles and the committer. Writes that belong to no run's journal (claiming work, taking
over runs, erasing a payload) are methods here, each one transaction. Reads are for recovery: they rebuild what memory
lost.
"""

from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from perdure.core.books import Books
from perdure.core.ids import Guid, HostId, RunId
from perdure.core.journal.entry import Entry
from perdure.core.journal.state import Status
from perdure.core.ledger import AccountId
from perdure.core.limits import MAX_TIME_MS
from perdure.core.messages import Message
from perdure.core.runs.description import QueuedWork
from perdure.core.streams.chunks import ChunkOrigin, StoredChunk
from perdure.store.access_table import AccessTable
from perdure.store.admission_table import AdmissionTable
from perdure.store.bus_table import BusTable
from perdure.store.commit.bundle import Bundle
from perdure.store.commit.committer import OnDecided
from perdure.store.commit.fence import Fence
from perdure.store.graph_tables import GraphTables
from perdure.store.hints import HintChannel, OnHint
from perdure.store.list_queries import ListTables
from perdure.store.operation_table import OperationTable
from perdure.store.operator_tables import OperatorTables
from perdure.store.retention_table import RetentionTable
from perdure.store.rows.hosts import HeartbeatConnection, HostScope, HostSnapshot, NewHost
from perdure.store.rows.records import (
    ActMessage,
    JournalPart,
    Progress,
    Run,
    SentMessage,
    StoredRun,
)
from perdure.store.schedule_table import ScheduleTable
from perdure.store.user_transaction import JoinedTransaction, OpenTransaction
from perdure.store.work_table import WorkTable


class Store(GraphTables, ListTables, OperatorTables, WorkTable, Protocol):
    """The books, their messages and their work. Times are milliseconds, and always arguments."""

    @property
    def name(self) -> str:
        """The database without credentials, for messages to people."""
        ...

    @property
    def schedules(self) -> ScheduleTable:
        """The schedules of this store."""
        ...

    @property
    def admission(self) -> AdmissionTable:
        """Starts that wait, and limits."""
        ...

    @property
    def buses(self) -> BusTable:
        """The event buses of this store."""
        ...

    @property
    def retention(self) -> RetentionTable:
        """Runs that leave this store, or lose their data."""
        ...

    @property
    def access(self) -> AccessTable:
        """The tokens of the HTTP API, and its audit log."""
        ...

    def operations(self, lock_timeout_s: float) -> OperationTable:
        """The operations of `perdure.operations` in this store.

        A change that waits longer than `lock_timeout_s` for an operation's lock raises `StoreUnavailable`.
        """
        ...

    async def close(self) -> None:
        """Decide every accepted bundle, then close the connections."""
        ...

    def commit(self, bundle: Bundle) -> Awaitable[None]:
        """Queue a bundle, in the order of the calls. The awaitable returns when the bundle is durable, or raises
        `CommitRejected` if nothing of it was written.
        """
        ...

    def submit(self, bundle: Bundle, on_decided: OnDecided) -> None:
        """Queue a bundle as `commit` does, without waiting for a slot; calls `on_decided` with the outcome.

        For bundles whose number is bounded elsewhere, for instance by the attempts that run.
        """
        ...

    def transaction(self, limit_s: float) -> AbstractAsyncContextManager[OpenTransaction]:
        """A user's transaction, which may commit bundles together with the user's own rows.

        Rolled back if the block ends without a commit. Also rolled back `limit_s` seconds after its first statement;
        the block is then interrupted with `TimeoutError`. On SQLite every other write waits for it. On Postgres none
        does, and transactions wait for each other only beyond a number of them.
        """
        ...

    async def join(self, connection: object) -> JoinedTransaction:
        """The transaction that a user began on their own connection, and ends."""
        ...

    async def claim_runs(
        self, owner: HostId, limit: int, programs: Sequence[str] | None = None
    ) -> list[Run]:
        """Commits: ownership of open runs without an owner, each under a new epoch.

        With `programs`, only of runs of these programs.
        """
        ...

    async def take_over(self, from_owner: HostId, owner: HostId, limit: int) -> list[Run]:
        """Commits: ownership of another owner's open runs, each under a new epoch.

        From then on, the store rejects every bundle of the old owner for them.
        """
        ...

    async def take_run(self, run_id: RunId, from_owner: HostId | None, owner: HostId) -> Run | None:
        """Commits: ownership of one open run, under a new epoch. `None` if `from_owner` does not own it."""
        ...

    async def release_run(self, fence: Fence) -> bool:
        """Commits: the run has no owner. False if the fence's epoch is no longer the run's."""
        ...

    async def release_runs(self, owner: HostId) -> int:
        """Commits: all open runs of this owner have no owner, each under a new epoch. Returns how many."""
        ...

    async def count_open(self, owner: HostId | None) -> int:
        """The number of open runs of this owner; with `None`, of runs without an owner."""
        ...

    async def count_open_of(self, owners: Sequence[HostId], most: int) -> dict[HostId, int]:
        """The number of open runs of each of these owners, counted up to `most`."""
        ...

    async def register_host(self, host: NewHost) -> None:
        """Commits: the host's row. Written before it owns or claims anything: an owner without a row counts as dead."""
        ...

    async def remove_host(self, host: HostId) -> None:
        """Commits: the host's row is deleted. Whatever it still owns or has claimed counts as a dead host's."""
        ...

    async def clock_ms(self) -> int | None:
        """The time of the database server's clock; `None` if the store uses this machine's clock."""
        ...

    async def host_snapshot(self, scope: HostScope) -> HostSnapshot:
        """What a host needs to know of the store, in one statement and one snapshot."""
        ...

    @property
    def is_shared(self) -> bool:
        """Whether other processes can open this store."""
        ...

    def require_known_schema(self, version: int) -> None:
        """Raise `SchemaTooNew` if this code can't work on a store with a schema of that version."""
        ...

    def heartbeat_connection(self) -> HeartbeatConnection | None:
        """A connection for heartbeats, for use in a thread of its own.

        `None` if no other process can open this store: then there are no peers to show signs of life to.
        """
        ...

    def hint_channel(self, host: HostId, on_hint: OnHint) -> HintChannel | None:
        """Where this process sends and receives hints; `None` if no other process can open this store."""
        ...

    async def erase_payloads(self, run_id: RunId, first: int, end: int) -> int:
        """Commits: the payloads of entries `first` to `end` - 1 are erased. The hash chain still verifies."""
        ...

    async def run(self, run_id: RunId) -> Run | None: ...

    async def run_by_key(self, scope: str, program: str, key: str) -> Run | None: ...

    async def key_holders(
        self, places: Sequence[tuple[str, str, str]]
    ) -> dict[tuple[str, str, str], RunId]:
        """The runs that hold these keys, each given as scope, program, key. One statement."""
        ...

    async def chain_end(self, first: RunId) -> Run | None:
        """The last run of the chain that began with `first`; `first` itself if no run continues it."""
        ...

    async def chain(self, first: RunId) -> list[Run]:
        """All runs of the chain that began with `first`, in order."""
        ...

    async def taken_in_chain(self, first: RunId, guids: Sequence[Guid]) -> set[Guid]:
        """Which of these messages any run of the chain has recorded."""
        ...

    async def sent_before(self, first: RunId, guid: Guid) -> list[SentMessage]:
        """Where a message to the chain that began with `first`, or to that mailbox, waits, and who recorded it."""
        ...

    async def published_in_chain(self, first: RunId) -> dict[str, bytes]:
        """The newest value of each name that any run of the chain has published."""
        ...

    async def open_runs(
        self, owner: HostId | None, after: RunId | None = None, limit: int = 1000
    ) -> list[Run]:
        """Open runs of one owner, or without an owner, in the order of ids."""
        ...

    async def open_ids(
        self, after: RunId | None, limit: int, programs: Sequence[str] | None = None
    ) -> list[RunId]:
        """Ids of open runs of all owners, in order; with `programs`, only of runs of these programs."""
        ...

    async def entries(self, run_id: RunId, first: int = 0, end: int | None = None) -> list[Entry]:
        """Entries `first` to `end` - 1 of a journal, in order."""
        ...

    async def grown(self, parts: Sequence[JournalPart]) -> dict[RunId, list[Entry]]:
        """The entries of these parts, one of each journal, in order. Skips parts without entries. One statement."""
        ...

    async def load(self, run_ids: Sequence[RunId]) -> list[tuple[Run, list[Entry]]]:
        """Rows and whole journals of several runs, from one snapshot, in the order of ids.

        Skips runs that do not exist. Two statements, however many runs there are.
        """
        ...

    async def runs(self, run_ids: Sequence[RunId]) -> list[Run]:
        """The rows of those runs that exist, in the order of ids."""
        ...

    async def progress(self, run_ids: Sequence[RunId]) -> list[Progress]:
        """How far those of these runs are that exist. One statement."""
        ...

    async def load_all(self, run_ids: Sequence[RunId]) -> list[StoredRun]:
        """As `load`, with the runs' ledgers, the messages to their steps, their queued work and their graph rows.

        Three statements more, and another three if runs of graphs are among them.
        """
        ...

    async def balance(self, run_id: RunId, account: AccountId) -> int:
        """The balance of one account; 0 without postings."""
        ...

    async def balances(self, run_id: RunId) -> dict[AccountId, int]: ...

    async def due_messages(self, owner: HostId, now_ms: int, limit: int) -> list[Message]:
        """Messages that are pending and due, to runs of this owner and to closed runs.

        Level-triggered: returns a message again until it is acknowledged or marked.
        """
        ...

    async def pending(self, owner: HostId, origins: Sequence[RunId], limit: int) -> list[Message]:
        """Pending messages due at once that were first sent to these runs or mailboxes, in order.

        Only messages to runs of this owner or without an owner. One statement, however many origins there are.
        """
        ...

    async def next_due(self, owner: HostId, until_ms: int = MAX_TIME_MS) -> int | None:
        """When the next message is due that `due_messages` will return; `None` if none is due until `until_ms`.

        The cost grows with the messages of all hosts that are due until then.
        """
        ...

    async def messages(self, run_id: RunId) -> list[tuple[Message, str, str | None]]:
        """All messages of a run with their state and reason, in the order of arrival."""
        ...

    async def act_messages(self, run_id: RunId) -> list[ActMessage]:
        """The operator acts that a run has not taken in, or that were set aside with a reason."""
        ...

    async def queued_work(self, run_id: RunId) -> list[QueuedWork]:
        """The tasks of a run that are on queues, claimed or not."""
        ...

    async def statuses(self, run_ids: Sequence[RunId]) -> dict[RunId, Status]:
        """The status of each of these runs; skips runs that do not exist."""
        ...

    async def published(self, run_id: RunId) -> dict[str, bytes]:
        """The newest value of each name that the run has published."""
        ...

    async def streams(self, run_id: RunId) -> dict[str, int]:
        """The run's streams, with their numbers of chunks."""
        ...

    async def chunks(self, run_id: RunId, name: str, first: int, limit: int) -> list[StoredChunk]:
        """Up to `limit` chunks of a stream from position `first` on, in order."""
        ...

    async def spans(self, run_id: RunId, name: str, end: int) -> list[tuple[ChunkOrigin, range]]:
        """The origins of the chunks before position `end`, each with a range of positions, in order."""
        ...

    async def check(self) -> list[str]:
        """The problems that the database finds in its own files, as text for people.

        May read all files. Raises `StoreDamaged` if they can't be checked.
        """
        ...

    def books(self) -> AsyncIterator[Books]:
        """Both books of every run, each run in a snapshot of its own.

        A run whose rows can't be read yields books with that problem. Raises `StoreDamaged` if the next run can't be
        found.
        """
        ...
