"""Users' own connections and sessions: asyncpg's, psycopg's and SQLAlchemy's.

Neither psycopg nor SQLAlchemy is required: if its module is not imported, no connection can be from it.
"""

import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, cast

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from perdure.core.errors import InputError, TransactionOver
from perdure.store.postgres.writing import Connection


@dataclass(frozen=True, slots=True)
class Session:
    """A user's session whose transaction the store may end."""

    connection: Connection
    """Executes the store's statements."""
    flush: Callable[[], Awaitable[None]]
    """Sends the changes that the session has buffered."""
    commit: Callable[[], Awaitable[None]]
    roll_back: Callable[[], Awaitable[None]]
    close: Callable[[], Awaitable[None]]


async def session_of(connection: object) -> Session:
    """A SQLAlchemy session or a psycopg connection, in a transaction.

    Raises `InputError` for anything else, and if the session commits every statement by itself.
    """
    await _begin(connection)
    driver = await _driver_connection(connection)
    if driver is None or _is_asyncpg(connection):
        raise InputError(
            f"{connection!r} can't take part in a transaction of Perdure's",
            "pass SQLAlchemy's AsyncSession or AsyncConnection, or psycopg's AsyncConnection; "
            "asyncpg needs none: use tx.execute and tx.fetch",
        )
    if not driver.is_in_transaction():
        raise InputError(
            f"{connection!r} commits each statement by itself (autocommit)",
            "turn autocommit off: its changes must wait for the commit of the step",
        )
    users = cast("Any", connection)
    return Session(
        driver, getattr(users, "flush", _nothing), users.commit, users.rollback, users.close
    )


async def joined_connection(connection: object) -> Connection:
    """The connection for the store's statements, in a transaction that the user ends.

    Raises `InputError` if the store can't use the connection, and `TransactionOver` if it is in no transaction.
    """
    driver = await _driver_connection(connection)
    if driver is None:
        raise InputError(
            f"{connection!r} is not a connection of asyncpg, psycopg or SQLAlchemy",
            "pass asyncpg's or psycopg's AsyncConnection, or SQLAlchemy's AsyncConnection or "
            "AsyncSession, with a transaction begun on it",
        )
    if not driver.is_in_transaction():
        raise TransactionOver(
            "the connection is in no transaction",
            "begin one on it first: `async with connection.transaction():`; "
            "with SQLAlchemy, execute or flush something",
        )
    return driver


async def _begin(connection: object) -> None:
    """Begin the transaction of a session that has executed nothing yet."""
    alchemy, psycopg = sys.modules.get("sqlalchemy.ext.asyncio"), sys.modules.get("psycopg")
    if alchemy is not None and isinstance(
        connection, alchemy.AsyncSession | alchemy.AsyncConnection
    ):
        text = sys.modules["sqlalchemy"].text
        await cast("Any", connection).execute(text("SELECT 1"))
    elif psycopg is not None and isinstance(connection, psycopg.AsyncConnection):
        await connection.execute("SELECT 1")


async def _driver_connection(connection: object) -> Connection | None:
    alchemy = sys.modules.get("sqlalchemy.ext.asyncio")
    if alchemy is not None and isinstance(connection, alchemy.AsyncSession):
        connection = await connection.connection()
    if alchemy is not None and isinstance(connection, alchemy.AsyncConnection):
        connection = (await connection.get_raw_connection()).driver_connection
    if _is_asyncpg(connection):
        return cast("Connection", connection)
    psycopg = sys.modules.get("psycopg")
    if psycopg is None or not isinstance(connection, psycopg.AsyncConnection):
        return None
    from perdure.store.postgres.connections.psycopg_adapter import PsycopgAdapter  # noqa: PLC0415 - it needs psycopg

    return cast("Connection", PsycopgAdapter(connection))


def _is_asyncpg(connection: object) -> bool:
    return isinstance(connection, asyncpg.Connection | PoolConnectionProxy)


async def _nothing() -> None:
    """The `flush` of a connection, which buffers no changes."""
