"""A connection that commits groups, each until it is decided."""

import asyncio

import asyncpg

from perdure.core.errors import CommitRejected, StoreUnavailable
from perdure.store.bundle import Bundle
from perdure.store.group import Group
from perdure.store.postgres.opening import (
    CONFLICT,
    LOST,
    Address,
    let_go,
    require_lost,
    unavailable,
)
from perdure.store.postgres.writing import Connection, apply, landed
from perdure.store.writer import Contended

FIRST_WAIT_S = 0.05
LONGEST_WAIT_S = 5.0


class Commits:
    """Connects when that is needed, and again after a loss. One group at a time.

    `doubtful` are bundles that may be in the store though they were set aside: their commit was cut off before.
    """

    def __init__(
        self,
        address: Address,
        doubtful: set[Bundle],
        patience_ms: int,
        connection: Connection | None = None,
    ) -> None:
        self.connection = connection
        self.patience_ms = patience_ms
        """How long a lock of somebody else's is waited for."""
        self._address = address
        self._doubtful = doubtful
        self._is_in_doubt = False
        self._is_closing = False

    async def apply(self, group: Group) -> dict[int, CommitRejected]:
        """Apply until it is decided. After a lost connection, first see what became of it.

        Raises `Contended` if somebody else holds what it needs: nothing of it was written then, unless it is in
        doubt from before.
        """
        self._is_in_doubt = not self._doubtful.isdisjoint(group.bundles)
        wait_s = FIRST_WAIT_S
        while True:
            try:
                rejected = await self._apply(group)
            except CONFLICT:
                # Whoever reports a conflict has rolled back; what was in doubt before still is.
                pass
            except (*LOST, asyncpg.InterfaceError) as error:
                require_lost(error, self.connection)
                self._drop_connection()
                if self._is_closing and wait_s >= LONGEST_WAIT_S:
                    raise StoreUnavailable(
                        f"{self._address.name} was closed while it could not be reached ({error})",
                        "what was not acknowledged may be there or not: load the runs again",
                    ) from error
            except asyncpg.PostgresError as error:
                raise unavailable(self._address.name, error) from error
            else:
                self._doubtful.difference_update(group.bundles)
                return rejected
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 2, LONGEST_WAIT_S)

    async def _apply(self, group: Group) -> dict[int, CommitRejected]:
        if self.connection is None:
            self.connection = await self._address.connect()
        if self._is_in_doubt and await landed(self.connection, group):
            return {}
        doubted, self._is_in_doubt = self._is_in_doubt, True
        try:
            rejected = await apply(self.connection, group, self.patience_ms)
        except asyncpg.LockNotAvailableError as error:
            # Rolled back. What was in doubt before still is, and may be what holds the lock.
            if doubted:
                self._doubtful.update(group.bundles)
            raise Contended(str(error)) from error
        # What rejects it may be itself: by now a commit that was still ending has ended.
        if rejected and doubted and await landed(self.connection, group):
            return {}
        return rejected

    async def close(self) -> None:
        """Let go of the connection."""
        connection, self.connection = self.connection, None
        if connection is not None:
            await let_go(connection)

    def hurry(self) -> None:
        """The store closes: do not wait for ever for a server that is gone."""
        self._is_closing = True

    def _drop_connection(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.terminate()
