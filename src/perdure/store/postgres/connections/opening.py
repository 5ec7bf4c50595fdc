"""Connecting to Postgres, and the schema."""

import socket
from collections.abc import Awaitable, Callable
from typing import Any, cast
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg

from perdure.core.errors import InvalidUrl, NotOurDatabase, StoreUnavailable
from perdure.store.postgres.connections.poolers import require_own_session
from perdure.store.schema import known_version, migrations, no_store, require_newest, strange_tables

OLDEST = 14

LOST = (
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.IdleSessionTimeoutError,
    asyncpg.InternalClientError,  # the driver's error before it has noticed the end of a connection
    asyncpg.StatementCompletionUnknownError,
    asyncpg.TooManyConnectionsError,
    OSError,
    EOFError,
)
"""Errors of the connection, not of the statement: connect again.

An `InterfaceError` belongs to them if the connection is closed; on an open one it is a bug of Perdure's.
"""

_SILENCE = {
    "TCP_KEEPIDLE": 10,
    "TCP_KEEPINTVL": 5,
    "TCP_KEEPCNT": 3,
    "TCP_USER_TIMEOUT": 25_000,
}
"""Socket options that detect a silent server: seconds, a count, and milliseconds."""

CONFLICT = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError)
"""Conflicts between two transactions: try again."""


class Address:
    """A Postgres URL, without Perdure's own options.

    `statement_cache_size=0` turns prepared statements off, for poolers that don't support them.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query))
        size = options.pop("statement_cache_size", "200")
        if not size.isdecimal():
            raise InvalidUrl(
                f"statement_cache_size={size!r} in the store's URL", "use a number, or 0 for none"
            )
        self.statement_cache_size = int(size)
        self.dsn = urlunsplit(parts._replace(query=urlencode(options)))
        place = parts.netloc.rpartition("@")[2] or "localhost"
        self.name = f"postgresql://{place}{parts.path}"

    async def connect(self) -> "asyncpg.Connection[Any]":
        connection: asyncpg.Connection[Any] = await asyncpg.connect(
            self.dsn,
            statement_cache_size=self.statement_cache_size,
            server_settings={"application_name": "perdure"},
        )
        _detect_silence(connection)
        return connection


def _detect_silence(connection: "asyncpg.Connection[Any]") -> None:
    """Let the system detect a server that vanished without closing the connection, such as a failed machine or network.

    With the system's defaults that takes two hours. Unix sockets don't need it: their end is always reported.
    """
    # The driver has no public access to its socket.
    peer = cast("Any", connection)._transport.get_extra_info("socket")
    if peer is None or peer.family not in (socket.AF_INET, socket.AF_INET6):
        return
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _SILENCE.items():
        if hasattr(socket, name):
            peer.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


async def first_connection(
    address: Address, prepare: Callable[["asyncpg.Connection[Any]"], Awaitable[None]]
) -> "asyncpg.Connection[Any]":
    """Connect for the first time and `prepare` the store. Does not retry: an error here is for the caller to fix."""
    try:
        connection = await address.connect()
    except (*LOST, asyncpg.PostgresError, OverflowError, ValueError) as error:
        raise unreachable(address.name, error) from error
    try:
        _require_new_enough(connection, address.name)
        await require_own_session(address, connection)
        await prepare(connection)
    except BaseException as error:
        is_closed = connection.is_closed()
        await close_connection(connection)
        if isinstance(error, LOST) or (is_closed and isinstance(error, asyncpg.InterfaceError)):
            raise unreachable(address.name, error) from error
        if isinstance(error, asyncpg.PostgresError):
            raise unavailable(address.name, error) from error
        raise
    return connection


def _require_new_enough(connection: "asyncpg.Connection[Any]", name: str) -> None:
    major = connection.get_server_version().major
    if major < OLDEST:
        raise StoreUnavailable(f"{name} is Postgres {major}", f"use Postgres {OLDEST} or newer")


def unreachable(name: str, error: BaseException) -> StoreUnavailable:
    """No connection to the server could be opened, or it was lost."""
    return StoreUnavailable(
        f"{name} can't be reached ({type(error).__name__}: {error})",
        "check that the server runs and that the URL's user, password and database are right",
    )


async def migrate(connection: "asyncpg.Connection[Any]", name: str) -> None:
    """Migrate the schema, under the lock of the row that holds its version."""
    try:
        await _create_schema(connection, name)
        while await _version(connection, name) < len(migrations("postgres")):
            try:
                await _run_scripts(connection, name)
            except CONFLICT:
                continue
    except (asyncpg.UndefinedColumnError, asyncpg.DuplicateTableError) as error:
        raise strange_tables(name, error) from error
    except asyncpg.InsufficientPrivilegeError as error:
        raise StoreUnavailable(
            f"{name} does not let this user create Perdure's tables ({error})",
            "grant CREATE on the database, or open it once as its owner",
        ) from error


async def require_migrated(connection: "asyncpg.Connection[Any]", name: str) -> None:
    """Refuse a database whose schema is missing or needs a migration."""
    if await connection.fetchval("SELECT to_regclass('perdure.meta') IS NULL"):
        raise no_store(name)
    require_newest(name, await _version(connection, name), "postgres")


async def _run_scripts(connection: "asyncpg.Connection[Any]", name: str) -> None:
    scripts = migrations("postgres")
    async with connection.transaction():
        version = await _version(connection, name, lock=True)
        for script in scripts[version:]:
            await connection.execute(script)
        await connection.execute(
            "UPDATE perdure.meta SET value = $1 WHERE key = 'schema_version'", str(len(scripts))
        )


async def _version(connection: "asyncpg.Connection[Any]", name: str, *, lock: bool = False) -> int:
    value = await connection.fetchval(
        "SELECT value FROM perdure.meta WHERE key = 'schema_version'" + lock * " FOR UPDATE"
    )
    return known_version(name, value, "postgres")


async def _create_schema(connection: "asyncpg.Connection[Any]", name: str) -> None:
    """Create the schema and the row that holds its version. Two hosts that start at once both succeed."""
    while await connection.fetchval("SELECT to_regclass('perdure.meta') IS NULL"):
        await _require_room(connection, name)
        try:
            async with connection.transaction():
                await connection.execute("CREATE SCHEMA IF NOT EXISTS perdure")
                await connection.execute(
                    "CREATE TABLE perdure.meta (key text NOT NULL PRIMARY KEY, value text NOT NULL)"
                )
                await connection.execute("INSERT INTO perdure.meta VALUES ('schema_version', '0')")
        except (asyncpg.UniqueViolationError, asyncpg.DuplicateTableError):
            continue


async def _require_room(connection: "asyncpg.Connection[Any]", name: str) -> None:
    # Checks for the meta table again: another host may have created it since.
    stranger = await connection.fetchval(
        "SELECT min(relname) FROM pg_class WHERE relnamespace = to_regnamespace('perdure')"
        " AND to_regclass('perdure.meta') IS NULL"
    )
    if stranger is not None:
        raise NotOurDatabase(
            f"{name} has a schema 'perdure' that Perdure did not create (it holds {stranger!r})",
            "rename that schema, or use another database",
        )


def unavailable(name: str, error: asyncpg.PostgresError) -> StoreUnavailable:
    if isinstance(error, asyncpg.DiskFullError):
        return StoreUnavailable(
            f"the disk of {name} is full ({error})",
            "free space on the server's disk; nothing was written, and the runs then resume by themselves",
        )
    return StoreUnavailable(
        f"{name} refused a statement ({type(error).__name__}: {error})",
        "check the server and this user's rights; nothing was written, and the runs resume by themselves when the "
        "server accepts the statement",
    )


async def close_connection(connection: "asyncpg.Connection[Any]") -> None:
    try:
        await connection.close(timeout=5)
    except (*LOST, asyncpg.InterfaceError, TimeoutError):
        connection.terminate()


def require_lost(error: BaseException, connection: "asyncpg.Connection[Any] | None") -> None:
    """Raise `error` unless the connection is lost: retrying does not help against a bug of Perdure's."""
    mistaken = isinstance(error, asyncpg.InterfaceError)
    if mistaken and connection is not None and not connection.is_closed():
        raise error
