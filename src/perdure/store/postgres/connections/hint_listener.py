"""Hints between the processes of one Postgres database: NOTIFY, and LISTEN on a connection of its own.

A hint is sent after the commit that it is about, in a transaction of its own that does not wait for the disk: a NOTIFY
inside the commit would make commits wait for each other.
"""

import asyncio
import logging
from typing import Any

import asyncpg

from perdure.core.hosts.hints import channel_name
from perdure.core.ids import HostId
from perdure.store.hints import OnHint
from perdure.store.postgres.connections.opening import LOST, Address
from perdure.store.postgres.writing import Connection
from perdure.store.statements import statements

log = logging.getLogger("perdure.store")
_SQL = statements("postgres")

TO_ALL = "perdure_hints"
"""The channel of hints to all processes. Each process has one more, for hints to itself."""

ECHO_S = 2.0
"""How long the notification that tests a pooler may take."""

FIRST_DELAY_S = 0.5
LONGEST_DELAY_S = 30.0
SEND_LIMIT_S = 5.0

FAILURES = (*LOST, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError)


class PostgresHints:
    """Connects again after each loss; meanwhile hints are lost, and hosts find each other's work by polling."""

    def __init__(self, address: Address, host: HostId, on_hint: OnHint) -> None:
        self._address = address
        self._host = host
        self._on_hint = on_hint
        self._connection: Connection | None = None
        self._sending = asyncio.Lock()
        self._lost = asyncio.Event()
        self._can_listen = True
        self._task: asyncio.Task[None] | None = None
        self._echo: asyncio.Future[None] | None = None

    async def open(self) -> None:
        try:
            await self._connect()
        except FAILURES as error:
            self._note_lost(error)
        self._task = asyncio.get_running_loop().create_task(self._stay_connected())

    async def send(self, to: HostId | None, data: bytes) -> None:
        async with self._sending:
            connection = self._connection
            if connection is None:
                return
            try:
                channel = TO_ALL if to is None else _channel(to)
                text = data.decode()
                await connection.execute(_SQL["notify"], channel, text, timeout=SEND_LIMIT_S)
            except FAILURES as error:
                if connection is self._connection:
                    self._drop()
                    self._note_lost(error)

    async def rename(self, host: HostId) -> None:
        self._host = host
        self._drop()  # the next connection listens under the new name

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
        self._drop()

    async def _stay_connected(self) -> None:
        """Connect again whenever the connection is lost."""
        delay_s = FIRST_DELAY_S
        while True:
            if self._connection is not None:
                await self._lost.wait()
            try:
                await self._connect()
            except FAILURES:
                await asyncio.sleep(delay_s)
                delay_s = min(2 * delay_s, LONGEST_DELAY_S)
            else:
                delay_s = FIRST_DELAY_S
                self._on_hint(b"")

    async def _connect(self) -> None:
        connection = await self._address.connect()
        try:
            self._lost.clear()
            connection.add_termination_listener(self._ended)
            if self._can_listen:
                await self._listen(connection)
        except BaseException:
            connection.terminate()
            raise
        self._connection = connection

    async def _listen(self, connection: Connection) -> None:
        for channel in (TO_ALL, _channel(self._host)):
            await connection.add_listener(channel, self._arrived)
        if await self._hears_itself(connection):
            return
        self._can_listen = False
        log.warning(
            "%s is behind a pooler that shares sessions, so that notifications don't arrive: this process finds the "
            "work of other processes by polling, within about a second. For shorter waits use pool_mode=session or "
            "connect to the server directly.",
            self._address.name,
        )
        for channel in (TO_ALL, _channel(self._host)):
            await connection.remove_listener(channel, self._arrived)

    async def _hears_itself(self, connection: Connection) -> bool:
        """Whether notifications arrive, by one to itself if there is a pooler."""
        if await self._is_direct(connection):
            return True
        self._echo = asyncio.get_running_loop().create_future()
        try:
            await connection.execute(_SQL["notify"], _channel(self._host), "")
            await asyncio.wait_for(self._echo, ECHO_S)
        except TimeoutError:
            return False
        finally:
            self._echo = None
        return True

    async def _is_direct(self, connection: Connection) -> bool:
        """Whether there is no pooler: then the server's process is the one announced on connecting."""
        process = await connection.fetchval("SELECT pg_backend_pid()")
        return bool(process == connection.get_server_pid())

    def _arrived(self, _connection: Any, _process: int, _channel: str, payload: Any) -> None:
        if payload:
            self._on_hint(payload.encode())
        elif self._echo is not None and not self._echo.done():
            self._echo.set_result(None)

    def _ended(self, connection: Any) -> None:
        """The driver reports that a connection is closed."""
        if connection is self._connection:
            self._connection = None
            self._lost.set()

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        self._lost.set()
        if connection is not None:
            connection.terminate()

    def _note_lost(self, error: BaseException) -> None:
        log.info(
            "%s: the connection for hints is lost (%s: %s); until it is back, this process finds the work of other "
            "processes by polling, within about a second",
            *(self._address.name, type(error).__name__, error),
        )


def _channel(host: HostId) -> str:
    return f"{TO_ALL}_{channel_name(host)}"
