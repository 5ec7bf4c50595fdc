"""Hints between the processes that have one SQLite file open: datagram sockets in a directory beside the file.

Idle sockets cost nothing, and a datagram arrives within some 50 microseconds. To watch `PRAGMA data_version` instead,
each process would have to ask for it hundreds of times a second.
"""

import asyncio
import errno
import logging
import os
import socket
from contextlib import suppress
from pathlib import Path

from perdure.core.hosts.hints import channel_name
from perdure.core.ids import HostId
from perdure.store.hints import OnHint

log = logging.getLogger("perdure.store")

MAX_DATAGRAM_BYTES = 65_536
MAX_PATH_BYTES = 100
"""Systems limit the path of a socket to 104 or 108 bytes."""

SEND_ATTEMPTS = 20
PAUSE_S = 0.002
"""Pause before a hint is sent again to a process whose socket is full: it is busy, and reads soon."""


class SqliteHints:
    """One socket per engine, named after its host id. A process that may write the directory may send hints."""

    def __init__(self, path: str, host: HostId, on_hint: OnHint) -> None:
        self._directory = Path(f"{path}-hints").absolute()
        self._name = channel_name(host)
        self._on_hint = on_hint
        self._socket: socket.socket | None = None
        self._loop = asyncio.get_running_loop()
        self._base = str(self._directory)
        """The directory as it stands in socket paths."""
        self._directory_fd: int | None = None

    async def open(self) -> None:
        try:
            self._directory.mkdir(exist_ok=True)
            self._shorten_base()
            self._socket = self._bind()
            self._loop.add_reader(self._socket.fileno(), self._receive, self._socket)
        except (OSError, AttributeError, NotImplementedError) as error:
            # No Unix sockets, no right to make them, or an event loop that can't wait for them.
            self.close()
            log.info(
                "no hints between the processes of %s, which find each other's work by polling, within about a second: "
                "%s: %s",
                *(self._directory, type(error).__name__, error),
            )

    def _shorten_base(self) -> None:
        """Reach a directory with a long path through an open descriptor, where the system allows that."""
        if len(os.fsencode(self._base)) + len(self._name) + 1 <= MAX_PATH_BYTES:
            return
        self._directory_fd = os.open(self._directory, os.O_RDONLY)
        self._base = f"/proc/self/fd/{self._directory_fd}"

    def _bind(self) -> socket.socket:
        unbound = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            unbound.setblocking(False)
            unbound.bind(self._path(self._name))
        except BaseException:
            unbound.close()
            raise
        return unbound

    def _path(self, name: str) -> str:
        return f"{self._base}/{name}"

    def _receive(self, bound: socket.socket) -> None:
        with suppress(BlockingIOError, InterruptedError):
            while True:
                self._on_hint(bound.recv(MAX_DATAGRAM_BYTES))

    async def send(self, to: HostId | None, data: bytes) -> None:
        if to is not None:
            await self._send(channel_name(to), data)
            return
        for name in self._others():
            await self._send(name, data)

    def _others(self) -> list[str]:
        with suppress(OSError):
            return [name for name in os.listdir(self._directory) if name != self._name]
        return []

    async def _send(self, name: str, data: bytes) -> None:
        for _ in range(SEND_ATTEMPTS):
            if self._socket is None:
                return
            try:
                self._socket.sendto(data, self._path(name))
            except BlockingIOError:
                await asyncio.sleep(PAUSE_S)
                continue
            except ConnectionRefusedError:
                self._unlink(name)  # its process was killed
            except OSError as error:
                if error.errno == errno.ENOBUFS:  # macOS's word for a full socket
                    await asyncio.sleep(PAUSE_S)
                    continue
            return

    async def rename(self, host: HostId) -> None:
        if self._socket is None:
            return
        self._release()
        self._name = channel_name(host)
        await self.open()

    def _unlink(self, name: str) -> None:
        path = Path(self._path(name))
        with suppress(OSError):
            if path.is_socket():
                path.unlink()

    def _release(self) -> None:
        bound, self._socket = self._socket, None
        if bound is not None:
            self._loop.remove_reader(bound.fileno())
            bound.close()
            self._unlink(self._name)

    def close(self) -> None:
        self._release()
        directory, self._directory_fd = self._directory_fd, None
        if directory is not None:
            os.close(directory)
        with suppress(OSError):
            self._directory.rmdir()  # fails while another process has a socket in it
