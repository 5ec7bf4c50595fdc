"""The gate: admits a request or refuses it, before any handler sees it."""

import asyncio
from typing import Final

from starlette.requests import Request

from perdure.api.doors.caller import Caller
from perdure.api.doors.origin import is_local, require_same_origin
from perdure.api.endpoint import Endpoint
from perdure.api.problems import Refusal

MAX_BODY_BYTES: Final = 4 * 1024 * 1024
"""A body; the payload in it has a limit of its own."""

BODY_TIMEOUT_S: Final = 20.0
"""How long a body may take to arrive."""

LOCAL: Final = Caller(name="local", role="admin")
"""The caller on this machine while the store has no tokens."""

ANYONE: Final = Caller(name="", role="")
"""The caller of a route that lets everyone in."""


class Gate:
    """Admits requests from this machine alone."""

    async def admit(self, request: Request, endpoint: Endpoint) -> Caller:
        """The caller. Raises `Refusal`."""
        await asyncio.sleep(0)
        if endpoint.permission is None:
            return ANYONE
        if not is_local(request):
            raise Refusal(
                401,
                "unauthorized",
                "the request came from another machine, and has no token",
                "make a token with 'perdure token create'",
                {"WWW-Authenticate": "Bearer"},
            )
        require_same_origin(request)
        return LOCAL

    async def body(self, request: Request) -> bytes:
        """The body, up to its limit. A slow sender is not waited for."""
        kind = request.headers.get("content-type", "application/json").partition(";")[0]
        if kind.strip().lower() != "application/json":
            raise Refusal(
                415,
                "unsupported-media-type",
                f"the body is {kind[:100]!r}",
                "send application/json",
            )
        parts, size = [], 0
        try:
            async with asyncio.timeout(BODY_TIMEOUT_S):
                async for part in request.stream():
                    size += len(part)
                    if size > MAX_BODY_BYTES:
                        raise _too_large()
                    parts.append(part)
        except TimeoutError:
            raise Refusal(
                408,
                "too-slow",
                f"the body did not arrive within {BODY_TIMEOUT_S:g} s",
                "send it faster",
                {"Connection": "close"},
            ) from None
        return b"".join(parts)


def _too_large() -> Refusal:
    return Refusal(
        413,
        "too-large",
        f"the body is over {MAX_BODY_BYTES:,} bytes",
        "send less, or store large values as artifacts",
        {"Connection": "close"},
    )
