"""`perdure mcp`: lets an assistant look at runs and act on them, over standard input and output."""

import asyncio
from typing import Annotated

from cyclopts import Parameter

from perdure import Engine, InputError, Roles
from perdure.cli.front_end import front_end
from perdure.cli.store_setting import StoreOption
from perdure.cli.user_code import load_engine
from perdure.client.engine_summary import engine_parts

TargetOption = Annotated[
    str | None,
    Parameter(
        name="--engine",
        help="module:name of a perdure.Engine, whose module has the programs to fork.",
    ),
]
RoleOption = Annotated[str, Parameter(help="What it may do: viewer, operator, engineer or admin.")]
NameOption = Annotated[str, Parameter(name="--as", help="Its name in the journals of runs.")]


def mcp(
    *,
    role: RoleOption = "viewer",
    as_: NameOption = "assistant",
    target: TargetOption = None,
    store: StoreOption = None,
) -> int:
    """Serve the Model Context Protocol: an assistant lists and explains runs, and acts on them as its role allows."""
    if target is not None:
        store = store or engine_parts(load_engine(target)).url

    async def serve() -> None:
        async with front_end(store, authorizer=Roles()) as engine:
            await _serve(engine, role, as_)

    asyncio.run(serve())
    return 0


async def _serve(engine: Engine, role: str, name: str) -> None:
    try:
        from perdure.integrations.mcp import mcp_server  # noqa: PLC0415 - an extra, and slow
    except ModuleNotFoundError as error:
        raise InputError(
            f"module {error.name!r} is not installed", "run pip install 'perdure[mcp]'"
        ) from None
    await mcp_server(engine, role=role, name=name).run_stdio_async()
