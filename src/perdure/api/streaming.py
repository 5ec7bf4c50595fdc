"""Streams of server-sent events. A stream ends when its source does, the caller leaves, or the server stops."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Final, NamedTuple

from starlette.responses import Response, StreamingResponse

from perdure.api.encoding import json_bytes
from perdure.api.exchange import EVENT_STREAM, Exchange
from perdure.api.problems import problem_of

KEEP_ALIVE_S: Final = 15.0
"""After so long without an event a comment is sent, so that proxies keep the connection."""

RETRY_MS: Final = 2000
"""How long a browser waits before it connects again."""


class ServerEvent(NamedTuple):
    """One event. `id` is what the caller sends as `Last-Event-ID` when it connects again."""

    event: str
    data: bytes
    id: str = ""

    def encoded(self) -> bytes:
        number = f"id: {self.id}\n".encode() if self.id else b""
        return number + f"event: {self.event}\ndata: ".encode() + self.data + b"\n\n"


Events = AsyncGenerator[ServerEvent, None]


def event_stream(exchange: Exchange, events: Events) -> Response:
    """A response that sends these events. An error is sent as the event `problem`, and ends the stream."""
    return StreamingResponse(
        _encoded(exchange, events), headers={"X-Accel-Buffering": "no"}, media_type=EVENT_STREAM
    )


async def _encoded(exchange: Exchange, events: Events) -> AsyncGenerator[bytes, None]:
    stopping: asyncio.Event = exchange.shared.setdefault("stopping", asyncio.Event())
    stopped = asyncio.ensure_future(stopping.wait())
    yield f"retry: {RETRY_MS}\n\n".encode()
    following: asyncio.Future[ServerEvent] | None = None
    try:
        while not stopping.is_set():
            following = following or asyncio.ensure_future(anext(events))
            await asyncio.wait(
                (following, stopped), timeout=KEEP_ALIVE_S, return_when=asyncio.FIRST_COMPLETED
            )
            if not following.done():
                yield b": keep-alive\n\n"
                continue
            done, following = following, None
            try:
                yield done.result().encoded()
            except StopAsyncIteration:
                return
    except Exception as error:
        problem, _ = problem_of(error, exchange.request.url.path, exchange.command())
        yield ServerEvent("problem", json_bytes(problem)).encoded()
    finally:
        stopped.cancel()
        if following is not None:
            following.cancel()
            with suppress(BaseException):
                await following
        await events.aclose()
