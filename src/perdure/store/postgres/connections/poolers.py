"""Detects connection poolers that lose prepared statements or refuse transactions."""

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import asyncpg

from perdure.core.errors import StoreUnavailable

if TYPE_CHECKING:
    from perdure.store.postgres.connections.opening import Address

LIMIT_S = 5.0
"""How long the check may take: a pooler with a single connection would make it wait."""

MOST_SESSIONS = 8
"""How many sessions are opened to find a statement's own: poolers mostly hand out the last used one first."""

MIXED_UP = (asyncpg.InvalidSQLStatementNameError, asyncpg.DuplicatePreparedStatementError)
"""The server's errors about prepared statements when a pooler shares its sessions."""


async def require_own_session(address: "Address", connection: "asyncpg.Connection[Any]") -> None:
    """Refuse a pooler that refuses transactions.

    Refuse one that gives each transaction another session, unless it keeps prepared statements, or there are none.
    Costs one statement without a pooler: then the server's process is the one that it announced on connecting.
    """
    try:
        process = await connection.fetchval("SELECT pg_backend_pid()")
        if process == connection.get_server_pid():
            return
        await _begin_transaction(address, connection)
        if not address.statement_cache_size:
            return
        async with asyncio.timeout(LIMIT_S):
            await _use_from_another_session(address, connection)
    except MIXED_UP as error:
        reason = str(error).partition("\n")[0]  # the driver appends a page of advice
        raise StoreUnavailable(
            f"{address.name} is behind a pooler that shares sessions and loses prepared statements ({reason})",
            "append ?statement_cache_size=0 to the URL, which costs time in each statement, or use pool_mode=session, "
            "or connect to the server directly; pgbouncer from 1.21 on keeps prepared statements if "
            "max_prepared_statements is above 0",
        ) from error
    except TimeoutError:
        # A pooler with a single session: the check can't decide.
        return


async def _begin_transaction(address: "Address", connection: "asyncpg.Connection[Any]") -> None:
    try:
        async with connection.transaction():
            pass
    except asyncpg.PostgresConnectionError as error:
        raise StoreUnavailable(
            f"{address.name} is behind a pooler that ended the connection when a transaction began ({error})",
            "use pool_mode=session, or pool_mode=transaction with ?statement_cache_size=0 in the URL",
        ) from error


async def _use_from_another_session(
    address: "Address", connection: "asyncpg.Connection[Any]"
) -> None:
    """Use a prepared statement while another transaction has the session in which it was prepared."""
    async with connection.transaction():
        statement = await connection.prepare("SELECT pg_backend_pid()")
        process = await statement.fetchval()
    async with AsyncExitStack() as others:
        for _ in range(MOST_SESSIONS):
            other = await address.connect()
            others.callback(other.terminate)
            # Never ended: the pooler rolls it back when the connection closes.
            await other.transaction().start()
            if await other.fetchval("SELECT pg_backend_pid()") == process:
                await statement.fetchval()
                return
