"""Taking ownership of runs: the new owner learns which runs it has, even if the server's answer is lost."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg

from perdure.core.errors import StoreClosed
from perdure.store.postgres.connections.commit_connection import FIRST_WAIT_S, LONGEST_WAIT_S
from perdure.store.postgres.connections.opening import LOST
from perdure.store.postgres.writing import Connection, transaction
from perdure.store.rows.records import Run
from perdure.store.rows.runs import run_from
from perdure.store.statements import statements

log = logging.getLogger("perdure.store")

_SQL = statements("postgres")

UseConnection = Callable[[Callable[[Connection], Awaitable[list[Run]]]], Awaitable[list[Run]]]
"""Runs a job on a connection, and again if the connection is lost; raises other errors."""


class OwnershipChange:
    """One statement that takes ownership of runs, retried until its outcome is known.

    The runs are known before the commit. So after a lost connection the outcome can be read back, and no run is left
    with an owner that does not know of it.
    """

    def __init__(self, name: str, *values: Any) -> None:
        self._name = name
        self._values = values
        self._in_doubt: list[Run] = []
        """The runs of a commit that is not acknowledged: pending, or in doubt after a lost connection."""

    async def decide(self, use: UseConnection) -> list[Run]:
        """Take ownership, and return the runs.

        Raises errors only if no run was taken. While a commit is in doubt, no other host would take its runs, because
        their owner lives. So this retries without limit, whatever the error. A caller that does not wait must stop its
        host, which releases all its runs or is considered dead.
        """
        wait_s = FIRST_WAIT_S
        while True:
            try:
                return await use(self._try)
            except StoreClosed:
                raise
            except Exception as error:
                if not self._in_doubt:
                    raise
                log.warning(
                    "ownership of %d runs is in doubt; checking again in %.2f s: %s",
                    *(len(self._in_doubt), wait_s, error),
                )
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 2, LONGEST_WAIT_S)

    async def _try(self, connection: Connection) -> list[Run]:
        if self._in_doubt:
            taken = await self._taken(connection)
            # Known now: runs that were not taken must not be checked again after a later attempt.
            self._in_doubt = []
            if taken:
                return taken
        try:
            async with transaction(connection):
                rows = await connection.fetch(_SQL[self._name], *self._values)
                self._in_doubt = sorted(map(run_from, rows), key=lambda run: run.run_id)
        except asyncpg.PostgresError as error:
            if not isinstance(error, LOST):
                # The server answered that nothing was committed.
                self._in_doubt = []
            raise
        return self._in_doubt

    async def _taken(self, connection: Connection) -> list[Run]:
        """The runs in doubt that were taken, and that no other host has taken since."""
        rows = await connection.fetch(_SQL["lock_runs"], [run.run_id for run in self._in_doubt])
        held = {tuple(row) for row in rows}
        return [run for run in self._in_doubt if (run.run_id, run.owner, run.epoch) in held]
