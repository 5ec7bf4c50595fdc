"""A bounded number of connections for users' transactions, each made when it is first needed."""

import asyncio

import asyncpg

from perdure.core.errors import StoreClosed, TransactionInterrupted
from perdure.store.postgres.opening import LOST, Address
from perdure.store.postgres.writing import Connection


class Pool:
    """Who finds all connections taken waits for one, in the order of asking."""

    def __init__(self, address: Address, size: int) -> None:
        self._address = address
        self._size = size
        self._idle: asyncio.Queue[Connection | None] = asyncio.Queue()
        for _ in range(size):
            self._idle.put_nowait(None)
        self._is_closed = False

    async def take(self) -> Connection:
        """A connection that is open, for one transaction."""
        connection = await self._idle.get()
        try:
            if self._is_closed:
                raise StoreClosed("the store is closed", "begin a transaction before closing it")
            if connection is None or connection.is_closed():
                connection = None
                return await self._address.connect()
            return connection
        except (*LOST, asyncpg.PostgresError) as error:
            self._idle.put_nowait(None)
            raise TransactionInterrupted(
                f"{self._address.name} can't be reached ({type(error).__name__}: {error})",
                "begin the transaction again",
            ) from error
        except BaseException:
            self._idle.put_nowait(connection)
            raise

    def give_back(self, connection: Connection | None) -> None:
        """Done with it; `None` if it is not worth keeping."""
        self._idle.put_nowait(connection)

    async def close(self) -> list[Connection]:
        """Let the transactions end, and begin no other. Returns the connections, to be closed."""
        self._is_closed = True
        connections = [await self._idle.get() for _ in range(self._size)]
        for _ in range(self._size):
            self._idle.put_nowait(None)
        return [connection for connection in connections if connection is not None]
