"""`perdure serve`: the HTTP API and the dashboard of a store, or of an engine that also executes runs."""

import asyncio
from typing import Annotated

from cyclopts import Parameter

from perdure import Engine, InputError
from perdure.cli.output import console
from perdure.cli.store_setting import StoreOption, existing_store, store_url
from perdure.cli.user_code import load_engine
from perdure.client.served import engine_to_serve
from perdure.dashboard.pages import Pages

TargetArgument = Annotated[
    str | None,
    Parameter(
        help="module:name of an engine, whose programs the API then knows. Without it a store is served."
    ),
]


def serve(
    target: TargetArgument = None,
    /,
    *,
    host: str = "127.0.0.1",
    port: int = 8377,
    executes: bool = False,
    store: StoreOption = None,
) -> int:
    """Serve the dashboard and the HTTP API until Ctrl-C.

    Parameters
    ----------
    host
        The address to listen on.
    port
        The port to listen on; 0 chooses a free one.
    executes
        Also execute runs in this process, as a worker does.
    """
    try:
        from perdure.api.serving import (  # noqa: PLC0415 - `perdure --help` needs no server
            listening_port,
            server_of,
        )
    except ModuleNotFoundError as error:
        raise InputError(
            f"the server needs {error.name}, which is not installed",
            "install it: pip install 'perdure[server]'",
        ) from None

    async def run() -> None:
        async with await _engine(target, store, executes=executes) as engine:
            server = await server_of(engine, host, port, Pages())
            serving = asyncio.create_task(server.serve())
            shown = asyncio.create_task(listening_port(server))
            await asyncio.wait((serving, shown), return_when=asyncio.FIRST_COMPLETED)
            if shown.done():
                name = f"[{host}]" if ":" in host else host
                console().print(f"serving at http://{name}:{shown.result()}", soft_wrap=True)
            shown.cancel()
            await serving

    asyncio.run(run())
    return 0


async def _engine(target: str | None, store: str | None, *, executes: bool) -> Engine:
    """The engine to serve. Without `executes` it owns and executes nothing."""
    if target is not None:
        url = None if store is None else store_url(store)
        return engine_to_serve(load_engine(target, "start the server"), url, executes=executes)
    if executes:
        raise InputError("--executes needs programs", "name an engine: perdure serve MODULE:ENGINE")
    url = store_url(store)
    async with existing_store(url):
        pass  # an engine would create it
    return Engine(url, hosts=False)
