"""A network that can be cut: a proxy between a host and its server."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from threading import Event, Thread
from types import TracebackType
from typing import Self


class Proxy:
    """Forwards connections to a port of this machine. A context manager, with a thread of its own.

    While it is cut, no byte arrives in either direction, and neither end gets an error. When the cut is healed, the
    proxy delivers the bytes that it held back, or has lost all connections.
    """

    def __init__(self, target: int, address: str = "127.0.0.1") -> None:
        self._target = target
        self._address = address
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._live, daemon=True)
        self._is_ready = Event()
        self._over = asyncio.Event()
        self._whole = asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._is_ready.wait(10)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(10)

    def cut(self) -> None:
        """From now on nothing arrives."""
        self._do(self._whole.clear)

    def mend(self, *, is_lost: bool) -> None:
        """Deliver what was held back; or, if it `is_lost`, lose it and the connections."""
        if is_lost:
            self._do(self._lose)
        self._do(self._whole.set)

    def _do(self, what: Callable[[], None]) -> None:
        async def call() -> None:
            what()

        asyncio.run_coroutine_threadsafe(call(), self._loop).result(60)

    def _lose(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    def _live(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._whole.set()
        server = await asyncio.start_server(self._connected, self._address, 0)
        self.port = server.sockets[0].getsockname()[1]
        self._is_ready.set()
        await self._over.wait()
        server.close()
        self._lose()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._whole.wait()
        try:
            to_server, from_server = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        ends = {writer, from_server}
        self._writers |= ends
        try:
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(self._pump(reader, from_server))
                pumps.create_task(self._pump(to_server, writer))
        finally:
            self._writers -= ends

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One direction; its end is passed on, too."""
        with suppress(OSError):
            while data := await reader.read(65536):
                await self._whole.wait()
                writer.write(data)
                await writer.drain()
        writer.close()
