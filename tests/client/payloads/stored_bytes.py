"""Everything that a store holds, as bytes, for a search."""

from pathlib import Path
from typing import Any

import asyncpg


async def stored_bytes(url: str) -> bytes:
    """All bytes of a SQLite file and of the files beside it, or all values of all tables of a Postgres store."""
    if url.startswith("sqlite:///"):
        path = Path(url.removeprefix("sqlite:///"))
        return b"\n".join(
            each.read_bytes() for each in path.parent.glob(f"{path.name}*") if each.is_file()
        )
    connection = await asyncpg.connect(url)
    try:
        names = await connection.fetch(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'perdure'"
        )
        rows = [
            row
            for (name,) in names
            for row in await connection.fetch(f'SELECT * FROM perdure."{name}"')
        ]
    finally:
        await connection.close()
    return b"\n".join(_bytes(value) for row in rows for value in row.values())


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()
