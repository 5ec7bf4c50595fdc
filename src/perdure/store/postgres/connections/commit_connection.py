"""The connection that commits groups, and retries each until its outcome is known."""

import asyncio

import asyncpg

from perdure.core.errors import CommitRejected, StoreUnavailable
from perdure.store.commit.bundle import Bundle
from perdure.store.commit.group import Group
from perdure.store.commit.writer import Contended
from perdure.store.postgres.connections.opening import (
    CONFLICT,
    LOST,
    Address,
    close_connection,
    require_lost,
    unavailable,
)
from perdure.store.postgres.writing import Connection, apply_group, is_committed

FIRST_WAIT_S = 0.05
LONGEST_WAIT_S = 5.0


class CommitConnection:
    """Connects when needed, and again after a loss. Commits one group at a time.

    `doubtful` are undecided bundles that may be in the store, because their connection was lost during the commit.
    """

    def __init__(
        self,
        address: Address,
        doubtful: set[Bundle],
        lock_timeout_ms: int,
        connection: Connection | None = None,
    ) -> None:
        self.connection = connection
        self.lock_timeout_ms = lock_timeout_ms
        """How long a group waits for a lock of another transaction."""
        self._address = address
        self._doubtful = doubtful
        self._is_in_doubt = False
        self._is_closing = False

    async def apply(self, group: Group) -> dict[int, CommitRejected]:
        """Apply the group until its outcome is known. After a lost connection, first look whether it was committed.

        Raises `Contended` if another transaction holds a lock that it needs: then nothing of it was written, unless
        the group was in doubt before.
        """
        self._is_in_doubt = not self._doubtful.isdisjoint(group.bundles)
        wait_s = FIRST_WAIT_S
        while True:
            try:
                rejected = await self._apply(group)
            except CONFLICT:
                # The server has rolled back. A group that was in doubt before still is.
                pass
            except (*LOST, asyncpg.InterfaceError) as error:
                require_lost(error, self.connection)
                self._drop_connection()
                if self._is_closing and wait_s >= LONGEST_WAIT_S:
                    raise StoreUnavailable(
                        f"{self._address.name} was closed while it could not be reached ({error})",
                        "load the runs again: unacknowledged commits may or may not be in the store",
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
        if self._is_in_doubt and await is_committed(self.connection, group):
            return {}
        doubted, self._is_in_doubt = self._is_in_doubt, True
        try:
            rejected = await apply_group(self.connection, group, self.lock_timeout_ms)
        except asyncpg.LockNotAvailableError as error:
            # Rolled back. A commit that was in doubt before still is, and may itself hold the lock.
            if doubted:
                self._doubtful.update(group.bundles)
            raise Contended(str(error)) from error
        # The group may conflict with its own earlier commit, which may have ended only now.
        if rejected and doubted and await is_committed(self.connection, group):
            return {}
        return rejected

    async def close(self) -> None:
        """Close the connection."""
        connection, self.connection = self.connection, None
        if connection is not None:
            await close_connection(connection)

    def begin_closing(self) -> None:
        """Stop retrying after a while, because the store is being closed."""
        self._is_closing = True

    def _drop_connection(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.terminate()
