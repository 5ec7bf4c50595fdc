"""A store: the books on disk. What both databases offer, and how one is opened.

Writes go through bundles and the committer. What is not part of a run's own life (claiming work,
taking over runs, erasing a payload) is a primitive of its own here, each one transaction. Reads are
for recovery: they rebuild what memory lost.
"""

from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from perdure.core.books import Books
from perdure.core.ids import Guid, HostId, RunId
from perdure.core.journal.entry import Entry
from perdure.core.ledger import AccountId
from perdure.core.limits import MAX_TIME_MS
from perdure.core.messages import Message
from perdure.core.streams.chunks import Origin, StoredChunk
from perdure.store.bundle import Bundle
from perdure.store.committer import Decided
from perdure.store.graphs import GraphTables
from perdure.store.hosts import Glance, Lifeline, NewHost, Scope
from perdure.store.operations import OperationTable
from perdure.store.primitives import Fence
from perdure.store.records import Claim, Run, Sent
from perdure.store.transaction import JoinedTransaction, OpenTransaction


class Store(GraphTables, Protocol):
    """The books, their messages and their work. Times are milliseconds, and always arguments."""

    @property
    def name(self) -> str:
        """The database, without credentials: for messages to people."""
        ...

    def operations(self, lock_timeout_s: float) -> OperationTable:
        """The operations of `perdure.operations` that are kept here.

        Whoever changes one and finds it locked for so long is told so, with `StoreUnavailable`.
        """
        ...

    async def close(self) -> None:
        """Decide every accepted bundle, then let go of the database."""
        ...

    def commit(self, bundle: Bundle) -> Awaitable[None]:
        """Take a bundle in, in the order of the calls; await the answer.

        It is done when the bundle is durable, and raises `CommitRejected` if that was not written.
        """
        ...

    def submit(self, bundle: Bundle, decided: Decided) -> None:
        """Take a bundle in, as `commit` does, but never wait for room; call `decided` with what became of it.

        For bundles whose number is bounded otherwise, such as by the bodies that run.
        """
        ...

    def transaction(self, limit_s: float) -> AbstractAsyncContextManager[OpenTransaction]:
        """A user's transaction, which may commit a bundle together with the user's own rows.

        Left without a commit it is rolled back. So it is after `limit_s` seconds, counted from its first
        statement, and whoever is inside is interrupted with `TimeoutError`. On SQLite every other change waits
        for it; on Postgres none does, and transactions wait for each other only beyond a bound.
        """
        ...

    def join(self, connection: object) -> JoinedTransaction:
        """The transaction that a user has begun on an asyncpg connection; the user ends it, too."""
        ...

    async def claim_runs(
        self, owner: HostId, limit: int, programs: Sequence[str] | None = None
    ) -> list[Run]:
        """Commits: ownership of open runs that have none, each under a new epoch.

        Only of runs of `programs`, if they are given.
        """
        ...

    async def take_over(self, from_owner: HostId, owner: HostId, limit: int) -> list[Run]:
        """Commits: ownership of another owner's open runs, each under a new epoch.

        From then on every bundle of the old owner is rejected.
        """
        ...

    async def release_run(self, fence: Fence) -> bool:
        """Commits: the run has no owner. False if it was not this owner's any more."""
        ...

    async def release_runs(self, owner: HostId) -> int:
        """Commits: all open runs of that owner have none, each under a new epoch. Returns how many."""
        ...

    async def count_open(self, owner: HostId | None) -> int:
        """How many open runs that owner has, or nobody."""
        ...

    async def register_host(self, host: NewHost) -> None:
        """Commits: a host that lives. Before it owns or claims anything: whoever does and has no row is dead."""
        ...

    async def remove_host(self, host: HostId) -> None:
        """Commits: the host is gone, and so is all that it had."""
        ...

    async def glance(self, scope: Scope) -> Glance:
        """What concerns a host, in one statement and one snapshot."""
        ...

    def lifeline(self) -> Lifeline | None:
        """A connection for heartbeats, to be used in a thread of its own. `None` if no other process can open
        this store: then nobody needs to know who is alive."""
        ...

    async def claim_work(
        self,
        host: HostId,
        queues: Sequence[str],
        token: str,
        now_ms: int,
        lease_ms: int,
        limit: int,
    ) -> list[Claim]:
        """Commits: a token and a lease on the most urgent tasks that are due.

        Two hosts never get the same task, unless the first one's lease has ended. That counts as another claim,
        unless the host is the one that had it.
        """
        ...

    async def renew_work(self, claims: Sequence[Claim], lease_until_ms: int) -> list[Claim]:
        """Commits: a longer lease. Returns those claims that still hold."""
        ...

    async def return_work(self, host: HostId, now_ms: int) -> int:
        """Commits: a host's claimed tasks are due again, for others. Returns how many."""
        ...

    async def return_claims(self, claims: Sequence[Claim], available_at_ms: int) -> None:
        """Commits: these tasks are due at that time, under no token, as if they had not been claimed: nobody has
        begun them. Claims that no longer hold are left alone."""
        ...

    async def return_stopped(self, claims: Sequence[Claim], now_ms: int) -> None:
        """Commits: these tasks are due, under no token, with the payloads that they have here. Claims that no longer
        hold are left alone."""
        ...

    async def next_work(self, queues: Sequence[str]) -> int | None:
        """The earliest time at which a task of these queues may be claimed: it is available then, or
        its lease ends. `None` if there is no task."""
        ...

    async def erase_payloads(self, run_id: RunId, first: int, end: int) -> int:
        """Commits: payloads of entries `first` to `end` - 1 are gone. The chain still verifies."""
        ...

    async def run(self, run_id: RunId) -> Run | None: ...

    async def run_by_key(self, scope: str, program: str, key: str) -> Run | None: ...

    async def chain_end(self, first: RunId) -> Run | None:
        """The last run of the chain that began with `first`: that itself, if nothing continues it."""
        ...

    async def chain(self, first: RunId) -> list[Run]:
        """All runs of the chain that began with `first`, in order."""
        ...

    async def taken_in_chain(self, first: RunId, guids: Sequence[Guid]) -> set[Guid]:
        """Which of these messages any run of the chain has taken in."""
        ...

    async def sent_before(self, first: RunId, guid: Guid) -> list[Sent]:
        """Where a message to the chain that began with `first`, or to that mailbox, waits, and who has taken it in."""
        ...

    async def published_in_chain(self, first: RunId) -> dict[str, bytes]:
        """The newest value of each name that any run of the chain has published."""
        ...

    async def open_runs(
        self, owner: HostId | None, after: RunId | None = None, limit: int = 1000
    ) -> list[Run]:
        """Runs of one owner (or of none) that are not over, in the order of ids."""
        ...

    async def open_ids(
        self, after: RunId | None, limit: int, programs: Sequence[str] | None = None
    ) -> list[RunId]:
        """Ids of runs that are not over, whoever owns them, in order; only of `programs`, if they are given."""
        ...

    async def entries(self, run_id: RunId, first: int = 0, end: int | None = None) -> list[Entry]:
        """Entries `first` to `end` - 1 of a journal, in order."""
        ...

    async def load(self, run_ids: Sequence[RunId]) -> list[tuple[Run, list[Entry]]]:
        """Rows and whole journals of several runs, as one snapshot shows them, in the order of ids.

        Runs that do not exist are left out. Two statements, however many runs there are.
        """
        ...

    async def balance(self, run_id: RunId, account: AccountId) -> int:
        """One account; 0 if nothing was posted to it."""
        ...

    async def balances(self, run_id: RunId) -> dict[AccountId, int]: ...

    async def due_messages(self, owner: HostId, now_ms: int, limit: int) -> list[Message]:
        """Messages that are pending and due, to runs that are this owner's or nobody's.

        Level-triggered: a message is here until it is acknowledged or marked.
        """
        ...

    async def next_due(self, owner: HostId, until_ms: int = MAX_TIME_MS) -> int | None:
        """When the next message is due that `due_messages` will return; `None` if none is until then.

        Costs by the messages of all hosts that are due until then.
        """
        ...

    async def messages(self, run_id: RunId) -> list[tuple[Message, str, str | None]]:
        """All messages of a run with their state and reason, in the order of arrival."""
        ...

    async def published(self, run_id: RunId) -> dict[str, bytes]:
        """The newest value of each name that the run has published."""
        ...

    async def streams(self, run_id: RunId) -> dict[str, int]:
        """The streams that the run has, and how many chunks each has."""
        ...

    async def chunks(self, run_id: RunId, name: str, first: int, limit: int) -> list[StoredChunk]:
        """The chunks of a stream from position `first` on, in order, up to a limit."""
        ...

    async def spans(self, run_id: RunId, name: str, end: int) -> list[tuple[Origin, range]]:
        """Who appended the chunks before position `end`: runs of positions, in order."""
        ...

    def books(self) -> AsyncIterator[Books]:
        """Both books of every run that is there now, each read in one snapshot, however short."""
        ...
