"""A bounded pool of connections for users' transactions, each opened when first needed."""

import asyncio

import asyncpg

from perdure.core.errors import StoreClosed, TransactionInterrupted
from perdure.store.postgres.connections.opening import LOST, Address
from perdure.store.postgres.writing import Connection

FRESH_S = 1.0
"""How long after its last use a connection is assumed to be open."""

ANSWER_S = 5.0
"""How long a server may take to answer a check."""


class Pool:
    """While all connections are in use, `take` waits for one, in the order of the calls."""

    def __init__(self, address: Address, size: int) -> None:
        self._address = address
        self._size = size
        self._idle: asyncio.LifoQueue[tuple[Connection | None, float]] = asyncio.LifoQueue()
        """Connections, and since when each has been idle, by the event loop's clock. The one used last is on top."""
        for _ in range(size):
            self._put(None)
        self._is_closed = False

    async def take(self, *, is_checked: bool = False) -> Connection:
        """An open connection for one transaction.

        With `is_checked`, a connection that was idle for long is first checked with a statement.
        """
        connection, since_s = await self._idle.get()
        try:
            if self._is_closed:
                raise StoreClosed("the store is closed", "begin a transaction before closing it")
            if connection is not None and is_checked and self._now_s() - since_s > FRESH_S:
                connection = await self._answering(connection)
            if connection is None or connection.is_closed():
                connection = None
                return await self._address.connect()
            return connection
        except (*LOST, asyncpg.PostgresError) as error:
            self._put(None)
            raise TransactionInterrupted(
                f"{self._address.name} can't be reached ({type(error).__name__}: {error})",
                "begin the transaction again",
            ) from error
        except BaseException:
            self._put(connection)
            raise

    async def _answering(self, connection: Connection) -> Connection | None:
        """The connection if its server answers; `None` otherwise."""
        try:
            await connection.execute("SELECT 1", timeout=ANSWER_S)
        except (*LOST, asyncpg.PostgresError, asyncpg.InterfaceError):
            connection.terminate()
            return None
        return connection

    def give_back(self, connection: Connection | None) -> None:
        """Return a connection; `None` if it is not to be reused."""
        self._put(connection)

    def _put(self, connection: Connection | None) -> None:
        self._idle.put_nowait((connection, self._now_s()))

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()

    async def close(self) -> list[Connection]:
        """Wait for the transactions to end and refuse new ones. Returns the connections, for the caller to close."""
        self._is_closed = True
        connections = [(await self._idle.get())[0] for _ in range(self._size)]
        for _ in range(self._size):
            self._put(None)
        return [connection for connection in connections if connection is not None]
