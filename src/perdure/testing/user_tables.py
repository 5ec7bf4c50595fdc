"""Stores with the user's own tables, for explorations of transactional tasks."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from perdure.core.transactions import Transaction
from perdure.store.store import Store
from perdure.testing.explorer import memory_store

LIMIT_S = 60.0

TablesCheck = Callable[[Transaction], Awaitable[None]]
"""Asserts what the tables must contain."""


class Tables:
    """Opens an in-memory store with your tables for each schedule: `open_store=Tables("CREATE TABLE ...")`.

    One transaction executes the statements before the run starts. `check` reads the tables after the run has ended.
    """

    def __init__(self, *statements: str, check: TablesCheck | None = None) -> None:
        self._statements = statements
        self._check = check

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[Store]:
        async with memory_store() as store:
            async with store.transaction(LIMIT_S) as transaction:
                for statement in self._statements:
                    await transaction.execute(statement)
                await transaction.commit([])
            yield store
            if self._check is not None:
                async with store.transaction(LIMIT_S) as transaction:
                    await self._check(transaction)
