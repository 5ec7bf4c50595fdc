"""What a Postgres server says about its durability and the way to it."""

from collections.abc import Callable

from perdure.store.postgres.connections.opening import (
    Address,
    close_connection,
    first_connection,
    require_migrated,
)
from perdure.store.postgres.writing import Connection
from perdure.store.rows.readings import Reading
from perdure.store.schema import migrations
from perdure.store.statements import statements

LARGE_SKEW_MS = 2000
"""A clock that is this far off is worth mending, although the server's clock decides timers and leases."""

_SQL = statements("postgres") | statements("postgres_operator")


async def diagnose_postgres(url: str, now_ms: Callable[[], int]) -> list[Reading]:
    address = Address(url)
    connection = await first_connection(address, lambda c: require_migrated(c, address.name))
    try:
        return await _readings(address, connection, now_ms)
    finally:
        await close_connection(connection)


async def _readings(
    address: Address, connection: Connection, now_ms: Callable[[], int]
) -> list[Reading]:
    ((version, fsync, commit, process, used, most),) = await connection.fetch(
        _SQL["server_settings"]
    )
    began = now_ms()
    clock_ms = await connection.fetchval(_SQL["select_clock"])
    ended = now_ms()
    skew_ms = (began + ended) // 2 - clock_ms
    is_pooled = process != connection.get_server_pid()
    prepared = "on" if address.statement_cache_size else "off"
    off = "set it to on: a power cut may damage the database"
    late = "set it to on, for this user or the database: a crash of the server may lose commits"
    return [
        Reading("schema version", str(len(migrations("postgres")))),
        Reading("server", f"Postgres {version}"),
        Reading("fsync", fsync, None if fsync == "on" else off),
        Reading("synchronous_commit", commit, late if commit == "off" else None),
        Reading("pooler", "yes, which shares sessions" if is_pooled else "none seen"),
        Reading("prepared statements", prepared),
        Reading(
            "connections",
            f"{used} of {most} in use",
            "raise max_connections, or use a pooler" if used > 0.9 * most else None,
        ),
        Reading(
            "clock skew",
            f"{skew_ms:+d} ms",
            "synchronize this machine's clock" if abs(skew_ms) > LARGE_SKEW_MS else None,
        ),
    ]
