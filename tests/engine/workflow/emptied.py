"""A Postgres database that every schedule of an exploration finds empty."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import asyncpg

from perdure.store.opening import open_store
from perdure.store.store import Store
from perdure.testing.explorer import OpenStore
from tests.empty_books import DELETE_ROWS


def emptied(url: str, prepare: Callable[[str], Awaitable[None]] | None = None) -> OpenStore:
    """Opens the store at `url` with empty books; `prepare` sees to other tables."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[Store]:
        store = await open_store(url)
        try:
            await delete_rows(url)
            if prepare is not None:
                await prepare(url)
            yield store
        finally:
            await store.close()

    return opened


async def delete_rows(url: str) -> None:
    """Empty all tables: quicker than to make them anew for each schedule."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("SET synchronous_commit = off;" + DELETE_ROWS)
    finally:
        await connection.close()
