"""Answers one request: finds the endpoint by its method, lets the caller in, reads, calls the handler, encodes."""

import asyncio
import gzip
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from perdure.api.doors import audit
from perdure.api.doors.gate import Gate
from perdure.api.encoding import json_bytes
from perdure.api.endpoint import Endpoint, Reply
from perdure.api.exchange import Exchange, Unchanged
from perdure.api.problems import Refusal, problem_of, problem_response
from perdure.api.queries import read_body, read_query
from perdure.client.engine import Engine

MIN_COMPRESSED: Final = 1024
"""Bytes from which on an answer is compressed."""

COMPRESSION: Final = 5

EXACT_INTEGERS: Final = "integers=exact"
"""What callers prefer who read integers of any size."""

_HEADERS: Final = {
    "Cache-Control": "private, no-cache",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Answers:
    """The endpoints of one path."""

    def __init__(
        self,
        engine: Engine,
        gate: Gate,
        endpoints: Sequence[Endpoint],
        shared: dict[str, Any],
    ) -> None:
        self._engine = engine
        self._gate = gate
        self._by_method = {each.method: each for each in endpoints}
        self._shared = shared

    async def answer(self, request: Request) -> Response:
        response = await self._answer(request)
        answered: Counter[int] = self._shared.setdefault("answered", Counter())
        answered[response.status_code // 100] += 1
        return response

    async def _answer(self, request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        endpoint = self._by_method.get(method)
        if endpoint is None:
            return _refused(request, self._not_allowed(request.method), "")
        exchange: Exchange | None = None
        try:
            caller = await self._gate.admit(request, endpoint)
            exchange = Exchange(self._engine, endpoint, request, caller, self._shared)
            await self._read(exchange)
            return _response(request, endpoint, await _handled(exchange))
        except Unchanged as unchanged:
            return Response(None, 304, {**_HEADERS, "ETag": str(unchanged)})
        except ClientDisconnect:
            return Response(None, 400)
        except Exception as error:
            return _refused(request, error, "" if exchange is None else exchange.command())

    async def _read(self, exchange: Exchange) -> None:
        endpoint, request = exchange.endpoint, exchange.request
        if endpoint.query is not None:
            exchange.query = read_query(endpoint.query, request.query_params.multi_items())
        if endpoint.body is not None:
            exchange.body = read_body(endpoint.body, await self._gate.body(request))

    def _not_allowed(self, method: str) -> Refusal:
        allowed = ", ".join(sorted({*self._by_method, *(["HEAD"] * ("GET" in self._by_method))}))
        return Refusal(
            405,
            "method-not-allowed",
            f"this route has no method {method[:20]!r}",
            f"use {allowed}",
            {"Allow": allowed},
        )


async def _handled(exchange: Exchange) -> Any:
    """What the handler answers. The audit log gets what was asked for, whether it was refused or not."""
    if exchange.endpoint.action is None:
        return await exchange.endpoint.handler(exchange)
    try:
        found = await exchange.endpoint.handler(exchange)
    except Exception as error:
        await audit.record(exchange, error)
        raise
    await audit.record(exchange, None)
    return found


def _refused(request: Request, error: Exception, command: str) -> Response:
    problem, headers = problem_of(error, request.url.path, command)
    return problem_response(problem, {**_HEADERS, **headers})


def _response(request: Request, endpoint: Endpoint, found: Any) -> Response:
    if isinstance(found, Response):
        for name, value in _HEADERS.items():
            found.headers.setdefault(name, value)
        return found
    reply = found if isinstance(found, Reply) else Reply(found, endpoint.status)
    headers = {**_HEADERS, **reply.headers}
    content = reply.value
    if reply.status == 204:
        return Response(None, 204, headers)
    if not isinstance(content, bytes):
        is_exact = EXACT_INTEGERS in request.headers.get("prefer", "")
        content = msgspec.json.encode(content) if is_exact else json_bytes(content)
    content = _compressed(request, content, headers)
    return Response(content, reply.status, headers, media_type=endpoint.media_type)


def _compressed(request: Request, content: bytes, headers: dict[str, str]) -> bytes:
    headers["Vary"] = "Accept, Accept-Encoding"
    if len(content) < MIN_COMPRESSED or not _accepts_gzip(request.headers):
        return content
    headers["Content-Encoding"] = "gzip"
    return gzip.compress(content, COMPRESSION, mtime=0)


def _accepts_gzip(headers: Mapping[str, str]) -> bool:
    for each in headers.get("accept-encoding", "").lower().split(","):
        name, _, quality = each.strip().partition(";")
        if name in ("gzip", "*"):
            return quality.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


async def not_found(request: Request) -> Response:
    """Answers a request for a path that no route has."""
    await asyncio.sleep(0)
    refusal = Refusal(
        404, "not-found", f"there is no route {request.url.path[:200]!r}", "see /openapi.json"
    )
    return _refused(request, refusal, "")
