"""Whether the server lives, and whether it can answer."""

import asyncio

import msgspec
from starlette.responses import Response

from perdure.api.encoding import json_bytes
from perdure.api.exchange import Exchange
from perdure.core.errors import PerdureError

READY_TIMEOUT_S = 2.0


class Health(msgspec.Struct, frozen=True, omit_defaults=True):
    """`ok`, or why not."""

    status: str
    problem: str = ""


async def health(exchange: Exchange) -> Health:  # noqa: ARG001 - a handler gets the exchange
    await asyncio.sleep(0)
    return Health("ok")


async def ready(exchange: Exchange) -> Response:
    """Asks the store for something small. A server whose store does not answer gets no requests."""
    try:
        async with asyncio.timeout(READY_TIMEOUT_S):
            await exchange.store.operations(READY_TIMEOUT_S).ids(backups=False)
    except (PerdureError, TimeoutError) as error:
        problem = Health("unavailable", str(error) or "the store does not answer in time")
        return Response(json_bytes(problem), 503, media_type="application/json")
    return Response(json_bytes(Health("ok")), media_type="application/json")
