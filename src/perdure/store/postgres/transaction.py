"""A user's transaction on Postgres: on a connection of its own, or on one of the user's."""

from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, cast

import asyncpg
from asyncpg.pool import PoolConnectionProxy
from asyncpg.transaction import Transaction

from perdure.core.errors import (
    CommitRejected,
    InputError,
    StatementFailed,
    TransactionInterrupted,
    TransactionOver,
)
from perdure.core.transactions import Row
from perdure.store.bundle import Bundle
from perdure.store.group import Group, break_fences, merge
from perdure.store.postgres.opening import CONFLICT, LOST
from perdure.store.postgres.pool import Pool
from perdure.store.postgres.writing import Connection, write_rows
from perdure.store.statement_text import require_no_schema_of_ours
from perdure.store.statements import statements
from perdure.store.transaction import (
    JoinedTransaction,
    OpenTransaction,
    UserTransaction,
    changed_back,
)
from perdure.store.writer import StatementRefused, refused

_SQL = statements("postgres")
_COUNTED = ("INSERT", "UPDATE", "DELETE", "MERGE")

Ask = Callable[..., Awaitable[list[Any]]]
"""Runs a statement of ours, by its name, on whichever connection is free; again if that is lost."""


class _OnConnection(UserTransaction):
    """Statements on the connection that a transaction has."""

    @property
    @abstractmethod
    def _connection(self) -> Connection: ...

    def _require_values(self, args: Sequence[Any]) -> None:
        """asyncpg knows the types that the statement wants, and judges by them."""

    async def _execute(self, sql: str, args: Sequence[Any]) -> int:
        require_no_schema_of_ours(sql)
        connection = self._connection
        with self._typed_errors():
            if args:
                return _count(await connection.execute(sql, *args))
            # Without arguments `execute` would take several statements at once, and COMMIT among them.
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
    """Locks no run before its commit. The server rolls it back by itself if it hears nothing for the time limit, and
    ends a statement that takes as long."""

    def __init__(self, pool: Pool, ask: Ask, limit_s: float) -> None:
        super().__init__(limit_s)
        self._pool = pool
        self._ask = ask
        self._taken: Connection | None = None
        self._transaction: Transaction | None = None
        self._token = ""
        """Written by the transaction itself: what is read back if the answer to its commit is lost."""

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

    async def _begin(self) -> None:
        self._taken = await self._pool.take()
        with self._typed_errors():
            self._transaction = self._taken.transaction(isolation="read_committed")
            await self._transaction.start()
            limit_ms = str(max(1, round(self._limit_s * 1000)))
            self._token = await self._taken.fetchval(_SQL["open_transaction"], limit_ms)

    async def _commit(self, group: Group) -> None:
        with self._typed_errors():
            rejected = await _write(self._connection, group, self._roll_back)
        if rejected is not None:
            raise rejected
        # Ours are checked as they are written: what fails here is a constraint of the user's that waited.
        with self._typed_errors():
            try:
                await cast("Transaction", self._transaction).commit()
            except CONFLICT:
                raise
            except (*LOST, asyncpg.InterfaceError) as error:
                if not await self._is_committed():
                    raise _interrupted(error) from error

    async def _is_committed(self) -> bool:
        """Whether a commit that was cut off came about. Returns when the server has ended it, one way or the other."""
        if self._taken is not None:
            self._taken.terminate()
        ((committed,),) = await self._ask("settle_outcome", self._token)
        await self._ask("forget_outcome", self._token)
        return bool(committed)

    async def _roll_back(self) -> None:
        await cast("Transaction", self._transaction).rollback()

    async def _let_go(self) -> None:
        connection, self._taken = self._taken, None
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
            # The server rolls back what it hears no more of.
            pass
        finally:
            if kept is None:
                connection.terminate()
            self._pool.give_back(kept)


class JoinedPostgresTransaction(_OnConnection, JoinedTransaction):
    """The transaction of a connection that is the user's."""

    def __init__(self, connection: object, ask: Ask) -> None:
        super().__init__()
        self._ask = ask
        if not isinstance(connection, asyncpg.Connection | PoolConnectionProxy):
            raise InputError(
                f"{connection!r} is not a connection of asyncpg",
                "pass the driver's own connection, with a transaction begun on it",
            )
        self._users = cast("Connection", connection)
        self._require_transaction()

    @property
    def _connection(self) -> Connection:
        return self._users

    def _require_transaction(self) -> None:
        if not self._users.is_in_transaction():
            raise TransactionOver(
                "the connection is in no transaction",
                "begin one on it first: `async with connection.transaction():`",
            )

    async def _begun(self) -> None:
        self._require_transaction()

    @asynccontextmanager
    async def block(self) -> AsyncIterator[None]:
        await self._require_same_database()
        savepoint = self._users.transaction()
        with self._typed_errors():
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

    async def _require_same_database(self) -> None:
        """What is written to another database, a copy of ours for one, no host of ours would ever find."""
        (users,) = await self._select("select_database", {})
        (ours,) = await self._ask("select_database")
        if users[0] != ours[0]:
            raise InputError(
                "the connection is not to the database that the engine is on",
                "pass a connection to that, or open an engine on this one",
            )

    async def write(self, bundle: Bundle) -> None:
        group, rejected = merge([bundle])
        reason: CommitRejected | TransactionInterrupted | None = rejected.get(0)
        try:
            if reason is None:
                async with self._turn():
                    reason = await self._write_apart(group)
            if reason is not None:
                raise reason
        except BaseException:
            break_fences(bundle)
            raise

    async def _write_apart(self, group: Group) -> CommitRejected | TransactionInterrupted | None:
        """Write all or nothing, whatever else the transaction holds."""
        savepoint = self._users.transaction()
        with self._typed_errors():
            await savepoint.start()
            rejected = await _write(self._users, group, savepoint.rollback)
            if rejected is None:
                await savepoint.commit()
            return rejected


async def _write(
    connection: Connection, group: Group, roll_back: Callable[[], Awaitable[None]]
) -> CommitRejected | TransactionInterrupted | None:
    """Write the group's rows; or roll back and return why they do not fit."""
    try:
        misfits = await write_rows(connection, group)
    except (asyncpg.IntegrityConstraintViolationError, asyncpg.DataError) as error:
        await roll_back()
        return refused(StatementRefused(str(error)))
    if misfits is None:
        return None
    await roll_back()
    rejected = await misfits(connection, group)
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
