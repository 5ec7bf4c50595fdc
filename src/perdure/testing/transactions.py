"""Users' transactions with faults."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from perdure.core.errors import TransactionInterrupted
from perdure.core.journal.events import InvokeCompleted
from perdure.store.commit.bundle import Bundle
from perdure.store.user_transaction import OpenTransaction

if TYPE_CHECKING:
    from perdure.testing.crashing_store import CrashingStore
    from perdure.testing.simulation import Simulation

Bundles = Sequence[Bundle]
Commit = Callable[[Bundles], Awaitable[None]]


class FaultyTransaction:
    """A user's transaction. Its host may lose its runs or the connection before it begins, and may die at its commit.

    While the transaction is open, a store with one writer lets no other host take a run: only before or after it. The
    user's rows must commit with the completion of the step that wrote them, which is why they are written once.
    """

    def __init__(
        self, simulation: "Simulation", store: "CrashingStore", real: OpenTransaction
    ) -> None:
        self._simulation = simulation
        self._store = store
        self._real = real
        self._is_cut_off = False
        real.before_begin(self._begin)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    @property
    def is_cut_off(self) -> bool:
        return self._is_cut_off or self._real.is_cut_off

    async def _begin(self) -> None:
        options = ["begins", "crash before", "connection lost"]
        if await self._store.choose_fault("a transaction", options) == "connection lost":
            self._is_cut_off = True
            raise TransactionInterrupted("the connection was lost", "begin it again")

    async def commit(self, bundles: Bundles) -> None:
        may_lose = not self._real.is_exclusive
        await self._store.commit_by(self._write, bundles, may_lose)

    async def _write(self, bundles: Bundles) -> None:
        await self._real.commit(bundles)
        entries = [
            entry
            for bundle in bundles
            for _, appended in bundle.appends
            for entry in appended.entries
        ]
        if not any(isinstance(entry.event, InvokeCompleted) for entry in entries):
            self._simulation.violations.append(
                "rows were committed without the completion of their step"
            )


@asynccontextmanager
async def faulty_transaction(
    simulation: "Simulation", store: "CrashingStore", limit_s: float
) -> AsyncIterator[FaultyTransaction]:
    """A transaction that the database rolls back if its host dies."""
    await store.require_alive()
    async with simulation.store.transaction(limit_s) as real:
        store.open_transactions.add(real)
        try:
            yield FaultyTransaction(simulation, store, real)
        finally:
            store.open_transactions.discard(real)


def end_transactions(store: "CrashingStore") -> None:
    """Close the connections of a dead host."""
    for transaction in store.open_transactions:
        closing = asyncio.ensure_future(transaction.close())
        store.tasks.add(closing)
        closing.add_done_callback(store.tasks.discard)
