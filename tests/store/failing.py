"""A Postgres connection that fails on cue: at the commit, before or after the server has done it."""

import asyncio
from collections.abc import Callable
from typing import Any, Final, cast

import asyncpg

from perdure.store.postgres.store import PostgresStore
from perdure.store.postgres.writing import Connection

LOST: Final = asyncpg.ConnectionDoesNotExistError(
    "connection was closed in the middle of operation"
)


class Failing:
    """Passes all calls to a real connection, except the ends of transactions."""

    def __init__(self, real: Connection, end: "Callable[[Failing, Any], Any]") -> None:
        self.real = real
        self.end = end
        self.left_open = False
        self.in_transaction = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def transaction(self, **options: Any) -> "_Transaction":
        return _Transaction(self, self.real.transaction(**options))

    async def execute(self, sql: str, *values: Any) -> str:
        """A statement outside a transaction is a transaction of its own."""
        if sql.startswith("BEGIN"):
            self.in_transaction = True
        elif sql in ("COMMIT", "ROLLBACK"):
            self.in_transaction = False
            if sql == "COMMIT":
                await self.end(self, _Begun(self.real))
                return sql
        elif not self.in_transaction:
            async with self.transaction():
                return await self.real.execute(sql, *values)
        return await self.real.execute(sql, *values)

    def terminate(self) -> None:
        if not self.left_open:
            self.real.terminate()


class _Begun:
    """A transaction that was begun by a statement."""

    def __init__(self, real: Connection) -> None:
        self._real = real

    async def commit(self) -> None:
        await self._real.execute("COMMIT")

    async def rollback(self) -> None:
        await self._real.execute("ROLLBACK")


class _Transaction:
    def __init__(self, connection: Failing, real: Any) -> None:
        self._connection = connection
        self._real = real

    async def __aenter__(self) -> None:
        await self._real.start()
        self._connection.in_transaction = True

    async def __aexit__(self, kind: object, *_: object) -> None:
        self._connection.in_transaction = False
        if kind is not None:
            await self._real.rollback()
        else:
            await self._connection.end(self._connection, self._real)


async def lose_before_commit(_: Failing, __: Any) -> None:
    """The commit does not reach the server."""
    raise LOST


async def lose_after_commit(_: Failing, transaction: Any) -> None:
    """The server commits, and its answer is lost."""
    await transaction.commit()
    raise LOST


async def confuse_the_driver(_: Failing, __: Any) -> None:
    """The error of the driver if the server ended the connection and the driver has not noticed yet."""
    raise asyncpg.InternalClientError("cannot switch to state 15; another operation is in progress")


async def refuse_to_serialize(_: Failing, transaction: Any) -> None:
    await transaction.rollback()
    raise asyncpg.SerializationError("could not serialize access")


async def deadlock(_: Failing, transaction: Any) -> None:
    await transaction.rollback()
    raise asyncpg.DeadlockDetectedError("deadlock detected")


class SlowCommit:
    """The connection is lost while the server is still committing; the commit succeeds later."""

    def __init__(self, delay_s: float) -> None:
        self.delay_s = delay_s
        self.ended: asyncio.Task[None] | None = None

    async def __call__(self, connection: Failing, transaction: Any) -> None:
        connection.left_open = True

        async def end() -> None:
            await asyncio.sleep(self.delay_s)
            await transaction.commit()
            await connection.real.close()

        self.ended = asyncio.create_task(end())
        raise LOST

    async def wait_ended(self) -> None:
        """Wait until the server has ended the commit, which must have begun."""
        assert self.ended is not None
        await self.ended


def fail_once(store: PostgresStore, end: Callable[[Failing, Any], Any]) -> None:
    """Make the next transaction of the store's committing connection end like this."""
    real = store._commits.connection
    assert real is not None
    store._commits.connection = _failing_once(real, end)


async def fail_asking_once(store: PostgresStore, end: Callable[[Failing, Any], Any]) -> None:
    """Make the next transaction of a reader of the store end like this."""
    free = store._idle.get_nowait()
    if free is not None:
        await free.close()
    real = await store._address.connect()
    cast("Any", store._idle)._queue.append(_failing_once(real, end))


def _failing_once(real: Connection, end: Callable[[Failing, Any], Any]) -> Connection:
    async def once(connection: Failing, transaction: Any) -> None:
        connection.end = _commit
        await end(connection, transaction)

    return cast("Connection", Failing(real, once))


async def _commit(_: Failing, transaction: Any) -> None:
    await transaction.commit()
