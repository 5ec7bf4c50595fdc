"""A user's transaction on either database, from its first statement to its end.

It begins with its first statement, because from then on it holds what others may wait for: the write lock on SQLite,
a pooled connection on Postgres. Its time limit starts then. A statement that fails ends the transaction on SQLite too,
where the database itself would let it continue, so that a program behaves the same on both.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, ClassVar, TypeVar

from perdure.core.errors import (
    InputError,
    PerdureError,
    StoreError,
    TransactionInterrupted,
    TransactionOver,
)
from perdure.core.ids import RunId
from perdure.core.journal.entry import Entry
from perdure.core.transactions import Row
from perdure.store.commit.bundle import Bundle
from perdure.store.commit.group import Group, break_all, merge
from perdure.store.rows.records import Run
from perdure.store.rows.runs import entry_from, run_from
from perdure.store.rows.values import require_storable_values, require_texts
from perdure.store.user_statements import require_allowed

C = TypeVar("C")
T = TypeVar("T", bound="OpenTransaction")


class UserTransaction(ABC):
    """A user's statements, one at a time, until one fails."""

    def __init__(self) -> None:
        self._problem: Exception | None = None
        """Why further statements are refused."""
        self._mutex = asyncio.Lock()

    async def execute(self, sql: str, *args: Any) -> int:
        """Execute one statement; returns how many rows it inserted, changed or deleted."""
        async with self._statement(sql, args):
            return await self._execute(sql, args)

    async def fetch(self, sql: str, *args: Any) -> list[Row]:
        """All rows of a statement."""
        async with self._statement(sql, args):
            return await self._fetch(sql, args)

    async def fetch_one(self, sql: str, *args: Any) -> Row | None:
        """The first row; `None` if there is none."""
        rows = await self.fetch(sql, *args)
        return rows[0] if rows else None

    async def fetch_value(self, sql: str, *args: Any) -> Any:
        """The first column of the first row; `None` if there is no row."""
        row = await self.fetch_one(sql, *args)
        return None if row is None else next(iter(row.values()), None)

    async def adopt(self, connection: C) -> C:
        """Continue in the transaction of a user's session, which Perdure then commits or rolls back, and closes.

        Raises `InputError` where that is not supported.
        """
        raise InputError(
            f"{connection!r} can't take part in this transaction",
            "pass a session of another library only on Postgres: in a transactional task, or in "
            "engine.transaction() without a connection",
        )

    async def run(self, run_id: RunId) -> Run | None:
        """The run, as this transaction sees it."""
        rows = await self._read("select_run", run_id=run_id)
        return run_from(rows[0]) if rows else None

    async def chain_end(self, first: RunId) -> Run | None:
        """The last run of a chain, as this transaction sees it."""
        rows = await self._read("select_chain_end", first=first)
        return run_from(rows[0]) if rows else None

    async def run_by_key(self, scope: str, program: str, key: str) -> Run | None:
        """The run with this key, as this transaction sees it."""
        rows = await self._read("select_run_by_key", scope=scope, program=program, key=key)
        return run_from(rows[0]) if rows else None

    async def first_entry(self, run_id: RunId) -> Entry | None:
        """The first entry of a run, as this transaction sees it."""
        rows = await self._read("select_entries", run_id=run_id, first=0, end=1)
        return entry_from(rows[0]) if rows else None

    @property
    def is_interrupted(self) -> bool:
        """Whether the database or the connection caused the failure: the caller may retry the whole transaction."""
        return isinstance(self._problem, TransactionInterrupted | StoreError)

    def require_open(self) -> None:
        """Refuse further use after the end, or after a failure."""
        problem = self._problem
        if problem is None:
            return
        if isinstance(problem, TransactionOver | TimeoutError) or self.is_interrupted:
            raise problem
        what = problem.what if isinstance(problem, PerdureError) else problem
        raise TransactionOver(
            f"a statement of this transaction has failed ({what})",
            "leave its block and begin another one: nothing of this one is written",
        ) from problem

    def _statement(self, sql: str, args: Sequence[Any]) -> AbstractAsyncContextManager[None]:
        """A statement refused here, for its text or its values, does not end the transaction."""
        require_allowed(sql)
        require_texts(args)
        self._require_values(args)
        return self._exclusively()

    @abstractmethod
    def _require_values(self, args: Sequence[Any]) -> None:
        """Refuse values that the database would not store unchanged, unless its driver does so."""

    async def _read(self, name: str, **values: Any) -> list[Any]:
        require_storable_values(values.values())
        async with self._exclusively():
            return await self._select(name, values)

    @asynccontextmanager
    async def _exclusively(self) -> AsyncIterator[None]:
        """One statement at a time. A statement that fails or is cancelled ends the transaction."""
        async with self._mutex:
            self.require_open()
            try:
                await self._begun()
                yield
            except Exception as error:
                self._problem = self._problem or error
                raise
            except BaseException:
                self._problem = self._problem or TransactionOver(
                    "a statement of this transaction was cancelled", "begin another one"
                )
                raise

    @abstractmethod
    async def _begun(self) -> None:
        """Begin, unless it has begun."""

    @abstractmethod
    async def _execute(self, sql: str, args: Sequence[Any]) -> int:
        """Execute a user's statement; returns how many rows it changed."""

    @abstractmethod
    async def _fetch(self, sql: str, args: Sequence[Any]) -> list[Row]:
        """Execute a user's statement; returns its rows."""

    @abstractmethod
    async def _select(self, name: str, values: dict[str, Any]) -> list[Any]:
        """The rows of one of Perdure's statements, given by its name and its parameters in their order."""


class OpenTransaction(UserTransaction):
    """A transaction that Perdure begins and ends. Use it inside `time_limited`."""

    is_exclusive: ClassVar[bool] = False
    """Whether other writes wait while it is open."""

    def __init__(self, limit_s: float) -> None:
        super().__init__()
        self._preparations: list[Callable[[], Awaitable[object]]] = []
        self._limit_s = limit_s
        self._clock: asyncio.Timeout | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._ending: asyncio.Future[None] | None = None
        self._is_begun = False

    def before_begin(self, prepare: Callable[[], Awaitable[object]]) -> None:
        """Await `prepare` before the transaction begins, after those added earlier. If it raises, none begins."""
        self._preparations.append(prepare)

    async def flush(self) -> None:
        """Send the changes that an adopted session has buffered, before the commit locks a run."""

    @property
    def is_cut_off(self) -> bool:
        """Whether the transaction lost its connection to the database."""
        return False

    async def reserve(self) -> None:
        """Acquire a connection before the user's code runs, without beginning the transaction.

        Raises `TransactionInterrupted` if the database can't be reached.
        """

    async def commit(self, bundles: Sequence[Bundle]) -> None:
        """Commits: the user's rows and the bundles.

        Raises `CommitRejected` if a bundle does not fit: then nothing is written, and the fences of all bundles break.
        A cancelled caller does not cancel the commit.
        """
        try:
            self.require_open()
            group = _one_group(bundles)
        except BaseException:
            break_all(bundles)
            raise
        self._stop_clock()
        self._problem = TransactionOver("the transaction is over", "begin another one")
        self._ending = asyncio.ensure_future(self._finish(bundles, group))
        await asyncio.shield(self._ending)

    async def _finish(self, bundles: Sequence[Bundle], group: Group) -> None:
        async with self._mutex:
            try:
                await self._begun()
                await self._commit(group)
            except BaseException:
                break_all(bundles)
                raise
            finally:
                await self._release()

    async def close(self) -> None:
        """Roll back, unless committed. Returns when the transaction holds nothing any more."""
        if self._alarm is not None:
            self._alarm.cancel()
        if self._problem is None:
            self._problem = TransactionOver("the transaction was rolled back", "begin another one")
        if self._ending is None:
            self._ending = asyncio.ensure_future(self._roll_back_and_release())
        await asyncio.wait([self._ending])
        if not self._ending.cancelled():
            # Retrieved so that asyncio does not log it: `commit` has raised it, and a failed rollback changes nothing.
            self._ending.exception()

    async def _roll_back_and_release(self) -> None:
        async with self._mutex:
            await self._release()

    async def _begun(self) -> None:
        if self._is_begun:
            return
        for prepare in self._preparations:
            await prepare()
        await self._begin()
        self._is_begun = True
        if self._clock is not None and self._ending is None:
            loop = asyncio.get_running_loop()
            self._clock.reschedule(loop.time() + self._limit_s)
            self._alarm = loop.call_later(self._limit_s, self._expire)

    def watch(self, clock: asyncio.Timeout) -> None:
        """Let `clock` interrupt the user's block; it starts when the transaction begins."""
        self._clock = clock

    def _stop_clock(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        if self._clock is not None:
            self._clock.reschedule(None)

    def _expire(self) -> None:
        """Roll back even if the user's block ignores its interruption, because others wait for the transaction."""
        if self._ending is None:
            self._problem = self.too_long()
            self._ending = asyncio.ensure_future(self._roll_back_and_release())

    def too_long(self) -> TimeoutError:
        return TimeoutError(
            f"the transaction was open for more than {self._limit_s:g} s and was rolled back: "
            "do slow work before its first statement, or raise Settings.transaction_timeout"
        )

    @abstractmethod
    async def _begin(self) -> None:
        """Acquire what it needs and begin. `_release` cleans up if this is cancelled halfway."""

    @abstractmethod
    async def _commit(self, group: Group) -> None:
        """Write the group's rows and commit, or raise why not."""

    @abstractmethod
    async def _release(self) -> None:
        """Roll back, unless committed, and release what it holds. Called once, begun or not."""


class JoinedTransaction(UserTransaction):
    """A transaction that the user began and ends. Perdure does not learn its outcome."""

    @abstractmethod
    def block(self) -> AbstractAsyncContextManager[None]:
        """A savepoint: if the block raises, its writes are undone and the transaction continues.

        Raises `InputError` if the connection is to another database.
        """

    @abstractmethod
    async def write(self, bundle: Bundle) -> None:
        """Write the bundle's rows, for the user to commit.

        Raises `CommitRejected` if the bundle does not fit: nothing of it is written, and the transaction continues.
        """


def _one_group(bundles: Sequence[Bundle]) -> Group:
    """All bundles in one group, because a transaction has no next group."""
    group, rejected = merge(bundles)
    if rejected:
        raise rejected[min(rejected)]
    if group.size < len(bundles):
        raise InputError(
            "two bundles of one transaction conflict over a run, a key or a task", "write it once"
        )
    return group


def changed_back() -> TransactionInterrupted:
    """The bundle did not fit when it was written, and fits now: the caller may retry the transaction."""
    return TransactionInterrupted(
        "the runs that this transaction writes were changed meanwhile", "begin it again"
    )


@asynccontextmanager
async def time_limited(transaction: T) -> AsyncIterator[T]:
    """Run a block under the transaction's time limit; roll back unless the block committed."""
    clock = asyncio.timeout(None)
    try:
        async with clock:
            transaction.watch(clock)
            yield transaction
    except TimeoutError:
        if clock.expired():
            raise transaction.too_long() from None
        raise
    finally:
        await transaction.close()
