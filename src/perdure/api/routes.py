"""The table of all routes."""

import asyncio
from typing import Any

import msgspec

from perdure.api.doors.routes import DOORS
from perdure.api.endpoint import Endpoint, Reply
from perdure.api.exchange import Exchange
from perdure.api.openapi import document
from perdure.api.runs.routes import READING
from perdure.api.runs.writing_routes import WRITING
from perdure.api.storage.routes import STORAGE


async def openapi(exchange: Exchange) -> Reply:
    """The document is made once."""
    await asyncio.sleep(0)
    encoded = exchange.shared.get("openapi")
    if encoded is None:
        encoded = exchange.shared["openapi"] = msgspec.json.encode(document(endpoints()))
    return Reply(encoded)


DESCRIBED = Endpoint(
    method="GET",
    path="/openapi.json",
    handler=openapi,
    summary="The OpenAPI document of these routes.",
    permission=None,
    reply=dict[str, Any],
)


def endpoints() -> tuple[Endpoint, ...]:
    """All endpoints. Of two paths that match one request, the first answers. Starts are first: they are the most."""
    return (*WRITING, *READING, *STORAGE, *DOORS, DESCRIBED)
