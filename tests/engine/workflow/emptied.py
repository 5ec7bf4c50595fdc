"""A Postgres database that every schedule of an exploration finds empty."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from perdure.store.opening import open_store
from perdure.store.store import Store
from perdure.testing.explorer import OpenStore
from tests.empty_books import DELETE_ROWS
from tests.store.builders import raw


def emptied(url: str, prepare: Callable[[str], Awaitable[None]] | None = None) -> OpenStore:
    """Opens the store at `url` with empty books; `prepare` sees to other tables."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[Store]:
        store = await open_store(url)
        try:
            # Quicker than to make the tables anew for each schedule.
            await raw(store, DELETE_ROWS)
            if prepare is not None:
                await prepare(url)
            yield store
        finally:
            await store.close()

    return opened
