"""Taking runs: whoever takes them learns which, even if the server's answer is lost."""

from typing import Any

from perdure.store.postgres.writing import Connection, transaction
from perdure.store.records import Run
from perdure.store.rowforms import run_from
from perdure.store.statements import statements

_SQL = statements("postgres")


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

    async def __call__(self, connection: Connection) -> list[Run]:
        taken = await self._landed(connection)
        if not taken:
            async with transaction(connection):
                rows = await connection.fetch(_SQL[self._name], *self._values)
                taken = self._doubted = sorted(map(run_from, rows), key=lambda run: run.run_id)
        return taken

    async def _landed(self, connection: Connection) -> list[Run]:
        """Those in doubt that the take has brought to its owner, and nobody has taken since."""
        if not self._doubted:
            return []
        rows = await connection.fetch(_SQL["lock_runs"], [run.run_id for run in self._doubted])
        held = {tuple(row) for row in rows}
        return [run for run in self._doubted if (run.run_id, run.owner, run.epoch) in held]
