"""A Postgres database that every schedule of an exploration finds empty."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import asyncpg

from perdure.store.opening import open_store
from perdure.store.store import Store
from perdure.testing.explorer import OpenStore


def emptied(url: str, prepare: Callable[[str], Awaitable[None]] | None = None) -> OpenStore:
    """Opens the store at `url` with empty books; `prepare` sees to other tables."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[Store]:
        store = await open_store(url)
        try:
            await truncate(url)
            if prepare is not None:
                await prepare(url)
            yield store
        finally:
            await store.close()

    return opened


async def truncate(url: str) -> None:
    """Empty the books: quicker than to make them anew for each schedule."""
    connection = await asyncpg.connect(url)
    try:
        tables = await connection.fetch(
            "SELECT schemaname, tablename FROM pg_tables"
            " WHERE schemaname IN ('perdure', 'public') AND tablename <> 'meta'"
        )
        names = ", ".join(f"{row['schemaname']}.{row['tablename']}" for row in tables)
        await connection.execute(f"TRUNCATE {names}")
    finally:
        await connection.close()
