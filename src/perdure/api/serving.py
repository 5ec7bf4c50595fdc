"""Serves the API with uvicorn: where it listens, what it limits, how it stops."""

import asyncio
import os
from typing import Final

import uvicorn

from perdure.api.app import ApiApp, StaticPages
from perdure.api.doors.gate import MAX_HEADER_BYTES
from perdure.api.doors.origin import is_loopback
from perdure.client.engine import Engine
from perdure.client.served import host_of_engine
from perdure.core.errors import InputError

MOST_CONNECTIONS: Final = 5000
"""Requests and connections at the same time; further ones get 503."""

IDLE_S: Final = 30
"""How long a connection without a request stays open."""

STOP_S: Final = 5
"""How long a stop waits for requests under way."""


class Server(uvicorn.Server):
    """A server whose streams of events end when it is asked to stop."""

    def __init__(self, config: uvicorn.Config, api: ApiApp) -> None:
        super().__init__(config)
        self._api = api

    async def shutdown(self, sockets: object = None) -> None:  # noqa: ARG002 - uvicorn passes its sockets
        self._api.stop_streams()
        await super().shutdown()


async def server_of(
    engine: Engine, host: str, port: int, pages: StaticPages | None = None
) -> Server:
    """A server of an open engine. Refuses an address that others can reach if there is no token to know them by."""
    has_tokens = await host_of_engine(engine).dispatcher.store.access.has_tokens()
    if not has_tokens and not is_loopback(host):
        raise InputError(
            f"{host!r} can be reached from other machines, and the store has no tokens",
            "make one with 'perdure token create', or leave --host out",
        )
    await _require_free(host, port)
    api = ApiApp(engine, pages=pages)
    config = uvicorn.Config(
        api,
        host=host,
        port=port,
        access_log=False,
        log_level="warning",
        proxy_headers=False,
        server_header=False,
        date_header=True,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_keep_alive=IDLE_S,
        timeout_graceful_shutdown=STOP_S,
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        http="h11",
        ws="none",
    )
    return Server(config, api)


async def _require_free(host: str, port: int) -> None:
    """Raise unless this process can listen there. uvicorn would end the process."""
    try:
        probe = await asyncio.get_running_loop().create_server(asyncio.Protocol, host, port)
    except OSError as error:
        raise InputError(
            f"the server can't listen on port {port} of {host!r} ({os.strerror(error.errno or 0)})",
            "end what listens there, or choose another with --port",
        ) from None
    probe.close()
    await probe.wait_closed()


async def listening_port(server: Server) -> int:
    """The port that the server listens on, when it does."""
    while not server.started:
        if server.should_exit:
            raise InputError("the server did not start", "see its log: is the port in use?")
        await asyncio.sleep(0.01)
    return int(server.servers[0].sockets[0].getsockname()[1])
