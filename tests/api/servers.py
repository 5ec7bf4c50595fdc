"""A server of the API in a thread of its own, on a free port of this machine."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from perdure import Engine
from perdure.api.serving import listening_port, server_of


@contextmanager
def serving(url: str, *, hosts: bool = True) -> Iterator[str]:
    """The address of the server of an engine on this store."""
    address: list[str] = []
    is_up = threading.Event()
    stops: list[object] = []

    async def run() -> None:
        async with Engine(url, hosts=hosts) as engine:
            server = await server_of(engine, "127.0.0.1", 0)
            stops.append(server)
            served = asyncio.create_task(server.serve())
            address.append(f"http://127.0.0.1:{await listening_port(server)}")
            is_up.set()
            await served

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    assert is_up.wait(60)
    try:
        yield address[0]
    finally:
        stops[0].should_exit = True  # type: ignore[attr-defined]
        thread.join(60)
