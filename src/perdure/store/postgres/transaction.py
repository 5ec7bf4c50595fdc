"""A user's transaction on Postgres, on a connection of the store's or of the user's.

The store ends transactions on its own connections and on adopted sessions. The user ends the transaction of a joined
connection.
"""

import logging
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, TypeVar, cast

import asyncpg
from asyncpg.transaction import Transaction

from perdure.core.errors import (
    CommitRejected,
    InputError,
    StatementFailed,
    TransactionInterrupted,
    TransactionOver,
)
from perdure.core.transactions import Row
from perdure.store.commit.bundle import Bundle
from perdure.store.commit.group import Group, break_fences, merge
from perdure.store.commit.writer import StatementRefused, bundle_refused
from perdure.store.postgres.connections.opening import CONFLICT, LOST, unavailable
from perdure.store.postgres.connections.pool import Pool
from perdure.store.postgres.connections.sessions import Session, session_of
from perdure.store.postgres.writing import Connection, write_rows
from perdure.store.statements import statements
from perdure.store.user_statements import require_no_schema_of_ours
from perdure.store.user_transaction import (
    JoinedTransaction,
    OpenTransaction,
    UserTransaction,
    changed_back,
)

log = logging.getLogger("perdure.store")

T = TypeVar("T")
_SQL = statements("postgres")
_COUNTED = ("INSERT", "UPDATE", "DELETE", "MERGE")

FetchStatement = Callable[..., Awaitable[list[Any]]]
"""Runs one of Perdure's statements, by name, on any free connection, and again if the connection is lost."""


class _OnConnection(UserTransaction):
    """Executes statements on the transaction's connection."""

    @property
    @abstractmethod
    def _connection(self) -> Connection: ...

    def _require_values(self, args: Sequence[Any]) -> None:
        """asyncpg checks values by the parameter types of the statement."""

    async def _execute(self, sql: str, args: Sequence[Any]) -> int:
        require_no_schema_of_ours(sql)
        connection = self._connection
        with self._typed_errors():
            if args:
                return _count(await connection.execute(sql, *args))
            # Without arguments `execute` would accept several statements in one text, COMMIT among them.
            statement = await connection.prepare(sql, name="")
            await statement.fetch()
            return _count(statement.get_statusmsg())

    async def _fetch(self, sql: str, args: Sequence[Any]) -> list[Row]:
        require_no_schema_of_ours(sql)
        with self._typed_errors():
            return [dict(row) for row in await self._connection.fetch(sql, *args)]

    @contextmanager
    def _typed_errors(self) -> Iterator[None]:
        with _typed_errors(self._connection):
            yield

    async def _select(self, name: str, values: dict[str, Any]) -> list[Any]:
        with self._typed_errors():
            return await self._connection.fetch(_SQL[name], *values.values())


class PostgresTransaction(_OnConnection, OpenTransaction):
    """Locks no run before its commit. The server itself rolls it back when it is idle for the time limit, and cancels a
    statement that takes as long."""

    def __init__(self, pool: Pool, fetch: FetchStatement, limit_s: float) -> None:
        super().__init__(limit_s)
        self._pool = pool
        self._fetch_statement = fetch
        self._taken: Connection | None = None
        self._transaction: Transaction | None = None
        self._adopted: Session | None = None
        self._xid = ""
        """The server's id of the adopted session's transaction."""
        self._reserved: Connection | None = None
        """The connection on which it will begin, unless it adopts a session."""
        self._is_cut_off = False
        self._token = ""
        """Identifies the outcome row that the transaction writes, which is read if the answer to its commit is lost."""

    @property
    def _connection(self) -> Connection:
        if self._taken is None:
            raise TransactionOver("the transaction is over", "begin another one")
        return self._taken

    @contextmanager
    def _typed_errors(self) -> Iterator[None]:
        try:
            with super()._typed_errors():
                yield
        except StatementFailed as failed:
            if isinstance(failed.__cause__, asyncpg.QueryCanceledError):
                raise self.too_long() from failed
            raise
        except TransactionInterrupted as interrupted:
            if not isinstance(interrupted.__cause__, CONFLICT):
                self._is_cut_off = True
            raise

    @property
    def is_cut_off(self) -> bool:
        return self._is_cut_off

    async def reserve(self) -> None:
        async with self._mutex:
            self.require_open()
            if self._reserved is None:
                self._reserved = await self._pool.take(is_checked=True)

    async def adopt(self, connection: T) -> T:
        if self._is_begun:
            raise InputError(
                "the transaction has begun on another connection",
                "adopt before the first statement, and one session only",
            )
        self._adopted = await session_of(connection)
        async with self._exclusively():
            return connection

    @property
    def is_interrupted(self) -> bool:
        self._notice_lost_session()
        return super().is_interrupted

    def require_open(self) -> None:
        self._notice_lost_session()
        super().require_open()

    def _notice_lost_session(self) -> None:
        """Check whether an adopted session lost its connection, which the store does not learn otherwise."""
        if self._problem is None and self._adopted is not None and self._is_begun:
            if self._adopted.connection.is_closed():
                self._is_cut_off = True
                self._problem = _interrupted(ConnectionError("the session lost its connection"))

    async def flush(self) -> None:
        if self._adopted is None or not self._is_begun:
            return
        async with self._exclusively():
            try:
                await self._adopted.flush()
            except Exception as error:
                raise StatementFailed(
                    f"the session could not be flushed ({type(error).__name__}: {error})",
                    "nothing of it was written; to handle the error in the task, flush there",
                ) from error

    @property
    def _limit_ms(self) -> str:
        return str(max(1, round(self._limit_s * 1000)))

    async def _begin(self) -> None:
        reserved, self._reserved = self._reserved, None
        if self._adopted is not None:
            if reserved is not None:
                self._pool.give_back(reserved)
            await self._begin_adopted(self._adopted)
            return
        if reserved is not None and reserved.is_closed():
            # The connection was lost before the first statement, so nothing else is lost.
            self._pool.give_back(None)
            reserved = None
        self._taken = reserved or await self._pool.take()
        with self._typed_errors():
            self._transaction = self._taken.transaction(isolation="read_committed")
            await self._transaction.start()
            self._token = await self._taken.fetchval(_SQL["open_transaction"], self._limit_ms)

    async def _begin_adopted(self, session: Session) -> None:
        self._taken = session.connection
        with self._typed_errors():
            await _require_same_database(session.connection, self._fetch_statement)
            (row,) = await session.connection.fetch(_SQL["open_adopted"], self._limit_ms)
            self._token, self._xid = row[0], row[1]

    async def _commit(self, group: Group) -> None:
        if self._adopted is not None:
            await self._commit_adopted(self._adopted, group)
            return
        with self._typed_errors():
            rejected = await _write(self._connection, group, self._roll_back)
        if rejected is not None:
            raise rejected
        # Perdure's constraints are not deferred: what fails here is a deferred constraint of the user's.
        with self._typed_errors():
            try:
                await cast("Transaction", self._transaction).commit()
            except CONFLICT:
                raise
            except (*LOST, asyncpg.InterfaceError) as error:
                if not await self._is_committed():
                    raise _interrupted(error) from error

    async def _commit_adopted(self, session: Session, group: Group) -> None:
        with self._typed_errors():
            if await session.connection.fetchval(_SQL["select_transaction"]) != self._xid:
                raise TransactionOver(
                    "the task ended the transaction of its session: what it committed stays, "
                    "and its step is not completed with it",
                    "leave the end to Perdure; inside, use flush() and begin_nested()",
                )
            rejected = await _write_in_savepoint(session.connection, group)
        if rejected is not None:
            raise rejected
        try:
            await session.commit()
        except Exception as error:
            # Whatever the user's driver reports, the server knows whether it was committed.
            is_lost = session.connection.is_closed()
            if not await self._is_committed():
                if is_lost:
                    self._is_cut_off = True
                    raise _interrupted(error) from error
                raise StatementFailed(
                    f"the session could not commit ({type(error).__name__}: {error})",
                    "nothing of it was written",
                ) from error
        else:
            await self._fetch_statement("forget_outcome", self._token)

    async def _is_committed(self) -> bool:
        """Whether a commit without an answer was committed. Returns when the server has ended the transaction."""
        if self._taken is not None:
            self._taken.terminate()
        ((committed,),) = await self._fetch_statement("settle_outcome", self._token)
        await self._fetch_statement("forget_outcome", self._token)
        return bool(committed)

    async def _roll_back(self) -> None:
        await cast("Transaction", self._transaction).rollback()

    async def _release(self) -> None:
        connection, self._taken = self._taken, None
        if self._reserved is not None:
            self._pool.give_back(self._reserved)
            self._reserved = None
        if self._adopted is not None:
            await _close(self._adopted)
            return
        if connection is None:
            return
        kept = None
        try:
            if self._is_begun and not connection.is_closed():
                if connection.is_in_transaction():
                    await self._roll_back()
                await connection.execute(_SQL["reset_session"])
                kept = connection
        except (*LOST, asyncpg.PostgresError, asyncpg.InterfaceError):
            # The server rolls back a transaction whose connection ends.
            pass
        finally:
            if kept is None:
                connection.terminate()
            self._pool.give_back(kept)


class JoinedPostgresTransaction(_OnConnection, JoinedTransaction):
    """The transaction of a user's connection, which the user ends."""

    def __init__(self, connection: Connection, fetch: FetchStatement) -> None:
        super().__init__()
        self._fetch_statement = fetch
        self._users = connection

    @property
    def _connection(self) -> Connection:
        return self._users

    async def _begun(self) -> None:
        if not self._users.is_in_transaction():
            raise TransactionOver(
                "the connection is in no transaction",
                "begin one on it first: `async with connection.transaction():`",
            )

    @asynccontextmanager
    async def block(self) -> AsyncIterator[None]:
        with self._typed_errors():
            await _require_same_database(self._users, self._fetch_statement)
            savepoint = self._users.transaction()
            await savepoint.start()
        try:
            yield
            self.require_open()
            with self._typed_errors():
                await savepoint.commit()
        except BaseException:
            with suppress(*LOST, asyncpg.PostgresError, asyncpg.InterfaceError):
                await savepoint.rollback()
            raise

    async def write(self, bundle: Bundle) -> None:
        group, rejected = merge([bundle])
        reason: CommitRejected | TransactionInterrupted | None = rejected.get(0)
        try:
            if reason is None:
                async with self._exclusively():
                    with self._typed_errors():
                        reason = await _write_in_savepoint(self._users, group)
            if reason is not None:
                raise reason
        except BaseException:
            break_fences(bundle)
            raise


async def _require_same_database(connection: Connection, fetch: FetchStatement) -> None:
    """Refuse another database, a copy of the store for instance: no host would ever find the rows."""
    users = await connection.fetchval(_SQL["select_database"])
    ((ours,),) = await fetch("select_database")
    if users != ours:
        raise InputError(
            "the connection is not to the database that the engine is on",
            "pass a connection to that, or open an engine on this one",
        )


async def _write_in_savepoint(
    connection: Connection, group: Group
) -> CommitRejected | TransactionInterrupted | None:
    """Write all rows of the group or none, without ending the transaction."""
    savepoint = connection.transaction()
    await savepoint.start()
    rejected = await _write(connection, group, savepoint.rollback)
    if rejected is None:
        await savepoint.commit()
    return rejected


async def _close(session: Session) -> None:
    """Roll back the session, unless committed, and close it."""
    try:
        await session.roll_back()
        await session.close()
    except Exception as error:  # of any driver; the server rolls back when the connection ends
        log.warning("a session could not be closed; terminating its connection: %r", error)
        session.connection.terminate()


async def _write(
    connection: Connection, group: Group, roll_back: Callable[[], Awaitable[None]]
) -> CommitRejected | TransactionInterrupted | None:
    """Write the group's rows; or roll back and return why they don't fit."""
    try:
        find_rejected = await write_rows(connection, group)
    except (asyncpg.IntegrityConstraintViolationError, asyncpg.DataError) as error:
        await roll_back()
        return bundle_refused(StatementRefused(str(error)))
    if find_rejected is None:
        return None
    await roll_back()
    rejected = await find_rejected(connection, group)
    return next(iter(rejected.values()), changed_back())


@contextmanager
def _typed_errors(connection: Connection) -> Iterator[None]:
    try:
        yield
    except CONFLICT as error:
        raise _interrupted(error) from error
    except (*LOST, asyncpg.InterfaceError) as error:
        if isinstance(error, asyncpg.InterfaceError) and not connection.is_closed():
            raise InputError(
                f"the statement and its arguments do not go together ({error})",
                "write $1, $2 and so on, one for each argument",
            ) from error
        raise _interrupted(error) from error
    except asyncpg.InFailedSQLTransactionError as error:
        raise TransactionOver(
            "an earlier statement of the transaction has failed", "roll it back, and begin another"
        ) from error
    except asyncpg.DiskFullError as error:
        raise unavailable("Postgres", error) from error
    except asyncpg.PostgresError as error:
        raise StatementFailed(
            f"Postgres refused the statement ({type(error).__name__}: {error})",
            "nothing of it was written",
        ) from error


def _interrupted(error: BaseException) -> TransactionInterrupted:
    return TransactionInterrupted(
        f"Postgres ended the transaction ({type(error).__name__}: {error})",
        "nothing of it was written; begin it again",
    )


def _count(status: str | None) -> int:
    status = status or ""
    verb, _, _ = status.partition(" ")
    return int(status.rpartition(" ")[2]) if verb in _COUNTED else 0
