"""Taking runs: whoever takes them learns which, even if the server's answer is lost."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg

from perdure.core.errors import StoreClosed
from perdure.store.postgres.commits import FIRST_WAIT_S, LONGEST_WAIT_S
from perdure.store.postgres.opening import LOST
from perdure.store.postgres.writing import Connection, transaction
from perdure.store.records import Run
from perdure.store.rowforms import run_from
from perdure.store.statements import statements

log = logging.getLogger("perdure.store")

_SQL = statements("postgres")

Use = Callable[[Callable[[Connection], Awaitable[list[Run]]]], Awaitable[list[Run]]]
"""Runs a job on a connection, again if that is lost; raises what else goes wrong."""


class Taking:
    """One statement that takes runs, to be tried until it is decided.

    What it takes is known before it is committed. So a commit that was cut off can be looked for, and the runs of one
    that came about are not left to an owner that does not know of them.
    """

    def __init__(self, name: str, *values: Any) -> None:
        self._name = name
        self._values = values
        self._doubted: list[Run] = []
        """What a commit has taken whose answer is still to come, or is lost."""

    async def decide(self, use: Use) -> list[Run]:
        """Take, and return what was taken.

        What goes wrong is raised only if nothing was taken. While a commit is in doubt nobody else would ever go on
        with its runs, as their owner lives: so they are looked for on and on, whatever the server says to it. Who
        does not wait for that stops: it gives up all its runs, or is taken for dead.
        """
        wait_s = FIRST_WAIT_S
        while True:
            try:
                return await use(self._try)
            except StoreClosed:
                raise
            except Exception as error:
                if not self._doubted:
                    raise
                log.warning(
                    "%d runs may have been taken; looking for them again in %.2f s: %s",
                    *(len(self._doubted), wait_s, error),
                )
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 2, LONGEST_WAIT_S)

    async def _try(self, connection: Connection) -> list[Run]:
        if self._doubted:
            taken = await self._landed(connection)
            # Decided: those that did not land must not be looked for once more, after a later take.
            self._doubted = []
            if taken:
                return taken
        try:
            async with transaction(connection):
                rows = await connection.fetch(_SQL[self._name], *self._values)
                self._doubted = sorted(map(run_from, rows), key=lambda run: run.run_id)
        except asyncpg.PostgresError as error:
            if not isinstance(error, LOST):
                # An answer, and it says that nothing was committed.
                self._doubted = []
            raise
        return self._doubted

    async def _landed(self, connection: Connection) -> list[Run]:
        """Those in doubt that the take has brought to its owner, and nobody has taken since."""
        rows = await connection.fetch(_SQL["lock_runs"], [run.run_id for run in self._doubted])
        held = {tuple(row) for row in rows}
        return [run for run in self._doubted if (run.run_id, run.owner, run.epoch) in held]
