"""A user's transaction on either database: its life, from the first statement to its one end.

It begins with its first statement, because it holds something that others may wait for: the writer's turn in
SQLite, a connection of Postgres. From then on it has a time limit. A statement that fails ends it on SQLite too,
where the database would let it go on, so that a program does the same on both.
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
from perdure.store.bundle import Bundle
from perdure.store.group import Group, break_all, merge
from perdure.store.records import Run
from perdure.store.rowforms import entry_from, run_from
from perdure.store.statement_text import require_allowed
from perdure.store.values import require_storable, require_texts

T = TypeVar("T", bound="OpenTransaction")


class UserTransaction(ABC):
    """Statements of the user's, one after the other, until one fails."""

    def __init__(self) -> None:
        self._problem: Exception | None = None
        """Why no further statement is taken."""
        self._line = asyncio.Lock()

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

    async def run(self, run_id: RunId) -> Run | None:
        """A run as this transaction sees it."""
        rows = await self._read("select_run", run_id=run_id)
        return run_from(rows[0]) if rows else None

    async def chain_end(self, first: RunId) -> Run | None:
        """The last run of a chain, as this transaction sees it."""
        rows = await self._read("select_chain_end", first=first)
        return run_from(rows[0]) if rows else None

    async def run_by_key(self, scope: str, program: str, key: str) -> Run | None:
        """The run that holds a key, as this transaction sees it."""
        rows = await self._read("select_run_by_key", scope=scope, program=program, key=key)
        return run_from(rows[0]) if rows else None

    async def first_entry(self, run_id: RunId) -> Entry | None:
        """The entry that a run began with, as this transaction sees it."""
        rows = await self._read("select_entries", run_id=run_id, first=0, end=1)
        return entry_from(rows[0]) if rows else None

    @property
    def is_interrupted(self) -> bool:
        """Whether it failed through no fault of its own: then it may be begun again as it was."""
        return isinstance(self._problem, TransactionInterrupted | StoreError)

    def require_open(self) -> None:
        """Refuse whatever comes after the end, or after a failure."""
        problem = self._problem
        if problem is None:
            return
        if isinstance(problem, TransactionOver | TimeoutError) or self.is_interrupted:
            raise problem
        what = problem.what if isinstance(problem, PerdureError) else problem
        raise TransactionOver(
            f"a statement of this transaction has failed ({what})",
            "let it end, and nothing of it is written; begin another one",
        ) from problem

    def _statement(self, sql: str, args: Sequence[Any]) -> AbstractAsyncContextManager[None]:
        """What is refused here, by its text or its values, has changed nothing: the transaction goes on."""
        require_allowed(sql)
        require_texts(args)
        self._require_values(args)
        return self._turn()

    @abstractmethod
    def _require_values(self, args: Sequence[Any]) -> None:
        """Refuse what the database would not store as it is, unless its driver does so."""

    async def _read(self, name: str, **values: Any) -> list[Any]:
        require_storable(values.values())
        async with self._turn():
            return await self._select(name, values)

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """One thing at a time. What fails in it, or is cut short, is the end of the transaction."""
        async with self._line:
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
        """Execute one statement of the user's; how many rows it changed."""

    @abstractmethod
    async def _fetch(self, sql: str, args: Sequence[Any]) -> list[Row]:
        """Execute one statement of the user's; the rows that it returns."""

    @abstractmethod
    async def _select(self, name: str, values: dict[str, Any]) -> list[Any]:
        """The rows of a statement of ours, by its name and its parameters in their order."""


class OpenTransaction(UserTransaction):
    """A transaction that Perdure begins and ends. Use it inside `limited`."""

    is_exclusive: ClassVar[bool] = False
    """Whether nothing else is committed while it is open."""

    def __init__(self, limit_s: float) -> None:
        super().__init__()
        self.prepare: Callable[[], Awaitable[object]] | None = None
        """Awaited before it begins."""
        self._limit_s = limit_s
        self._clock: asyncio.Timeout | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._ending: asyncio.Future[None] | None = None
        self._is_begun = False

    async def commit(self, bundles: Sequence[Bundle]) -> None:
        """Commits: the user's rows and the bundles.

        Raises `CommitRejected` if a bundle does not fit: nothing at all is written then, and their fences are
        broken. To stop waiting does not take it back.
        """
        try:
            self.require_open()
            group = _whole(bundles)
        except BaseException:
            break_all(bundles)
            raise
        self._stop_clock()
        self._problem = TransactionOver("the transaction is over", "begin another one")
        self._ending = asyncio.ensure_future(self._finish(bundles, group))
        await asyncio.shield(self._ending)

    async def _finish(self, bundles: Sequence[Bundle], group: Group) -> None:
        async with self._line:
            try:
                await self._begun()
                await self._commit(group)
            except BaseException:
                break_all(bundles)
                raise
            finally:
                await self._let_go()

    async def close(self) -> None:
        """Roll back what is not committed. Returns when nobody waits for this transaction any more."""
        if self._alarm is not None:
            self._alarm.cancel()
        if self._problem is None:
            self._problem = TransactionOver("the transaction was rolled back", "begin another one")
        if self._ending is None:
            self._ending = asyncio.ensure_future(self._give_up())
        await asyncio.wait([self._ending])
        if not self._ending.cancelled():
            # Seen: whoever committed was told, and a rollback that fails changes nothing.
            self._ending.exception()

    async def _give_up(self) -> None:
        async with self._line:
            await self._let_go()

    async def _begun(self) -> None:
        if self._is_begun:
            return
        if self.prepare is not None:
            await self.prepare()
        await self._begin()
        self._is_begun = True
        if self._clock is not None and self._ending is None:
            loop = asyncio.get_running_loop()
            self._clock.reschedule(loop.time() + self._limit_s)
            self._alarm = loop.call_later(self._limit_s, self._expire)

    def watch(self, clock: asyncio.Timeout) -> None:
        """`clock` interrupts whoever uses the transaction; it is set when that begins."""
        self._clock = clock

    def _stop_clock(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        if self._clock is not None:
            self._clock.reschedule(None)

    def _expire(self) -> None:
        """Over, even if whoever uses it will not be interrupted: others wait."""
        if self._ending is None:
            self._problem = self.too_long()
            self._ending = asyncio.ensure_future(self._give_up())

    def too_long(self) -> TimeoutError:
        return TimeoutError(
            f"the transaction was open for more than {self._limit_s:g} s and was rolled back: "
            "do what takes long before its first statement, or raise Settings.transaction_timeout"
        )

    @abstractmethod
    async def _begin(self) -> None:
        """Take what it needs and begin. If it is cut short, `_let_go` finds out how far it came."""

    @abstractmethod
    async def _commit(self, group: Group) -> None:
        """Write the group's rows and commit, or raise why not."""

    @abstractmethod
    async def _let_go(self) -> None:
        """Roll back what is not committed, and give back what it held. Called once, begun or not."""


class JoinedTransaction(UserTransaction):
    """A transaction that the user began and ends: what becomes of it is not known here."""

    @abstractmethod
    def block(self) -> AbstractAsyncContextManager[None]:
        """If it raises, nothing that was written inside is left in the transaction, which goes on.

        Refuses, with `InputError`, one of another database.
        """

    @abstractmethod
    async def write(self, bundle: Bundle) -> None:
        """Write the bundle's rows, to be committed by the user.

        Raises `CommitRejected` if it does not fit: nothing of it is written then, and the transaction goes on.
        """


def _whole(bundles: Sequence[Bundle]) -> Group:
    """All of them in one group: here none can wait for the next."""
    group, rejected = merge(bundles)
    if rejected:
        raise rejected[min(rejected)]
    if group.size < len(bundles):
        raise InputError(
            "two bundles of one transaction contend for a run, a key or a task", "write it once"
        )
    return group


def changed_back() -> TransactionInterrupted:
    """The bundle did not fit, and by the time that was looked into it did: nobody is to blame."""
    return TransactionInterrupted(
        "the runs that this transaction writes were changed meanwhile", "begin it again"
    )


@asynccontextmanager
async def limited(transaction: T) -> AsyncIterator[T]:
    """The transaction, from its beginning to its end: rolled back unless it was committed inside."""
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
