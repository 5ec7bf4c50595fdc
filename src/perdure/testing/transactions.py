"""Users' transactions whose fate an explorer decides."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from perdure.core.journal.events import InvokeCompleted
from perdure.store.bundle import Bundle
from perdure.store.transaction import OpenTransaction

if TYPE_CHECKING:
    from perdure.testing.mortal import MortalStore
    from perdure.testing.workflows import Universe

Bundles = Sequence[Bundle]
Commit = Callable[[Bundles], Awaitable[None]]


class FatefulTransaction:
    """A user's transaction. Its host may lose its runs before it begins; at its commit it may die.

    While it is open nobody else can take a run, if the store has one writer: only before or after. What it writes
    must commit with the completion of the step that wrote it: so it happens once, because that does.
    """

    def __init__(self, universe: "Universe", store: "MortalStore", real: OpenTransaction) -> None:
        self._universe = universe
        self._store = store
        self._real = real
        self._prepare: Callable[[], Awaitable[object]] | None = None
        real.prepare = self._begin

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    @property
    def prepare(self) -> Callable[[], Awaitable[object]] | None:
        return self._prepare

    @prepare.setter
    def prepare(self, prepare: Callable[[], Awaitable[object]]) -> None:
        self._prepare = prepare

    async def _begin(self) -> None:
        await self._store.meet_fate("a transaction", ["begins", "crash before"])
        if self._prepare is not None:
            await self._prepare()

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
            self._universe.violations.append("rows were committed without the end of their step")


@asynccontextmanager
async def fateful_transaction(
    universe: "Universe", store: "MortalStore", limit_s: float
) -> AsyncIterator[FatefulTransaction]:
    """A transaction that ends with its host: the database rolls back what it hears no more of."""
    if store.death.done():
        await store.die()
    async with universe.store.transaction(limit_s) as real:
        store.open_transactions.add(real)
        try:
            yield FatefulTransaction(universe, store, real)
        finally:
            store.open_transactions.discard(real)


def end_transactions(store: "MortalStore") -> None:
    """The host is dead: so are its connections."""
    for transaction in store.open_transactions:
        closing = asyncio.ensure_future(transaction.close())
        store.tasks.add(closing)
        closing.add_done_callback(store.tasks.discard)
