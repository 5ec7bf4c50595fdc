"""The gate: admits a request or refuses it, before any handler sees it."""

import asyncio
from collections import OrderedDict
from typing import Final

from starlette.requests import Request

from perdure.api.doors.caller import Caller
from perdure.api.doors.origin import is_local, require_same_origin
from perdure.api.doors.rates import Rates
from perdure.api.doors.tokens import bearer_of, parts_of, refusal_of
from perdure.api.endpoint import Endpoint
from perdure.api.problems import Refusal
from perdure.client.engine import Engine
from perdure.client.served import host_of_engine
from perdure.core.errors import Denied
from perdure.core.runs.authority import Permission, Roles
from perdure.host.clock import elapsed_ms
from perdure.host.host import Host
from perdure.store.access_table import TokenRow

MAX_BODY_BYTES: Final = 4 * 1024 * 1024
"""A body; the payload in it has a limit of its own."""

MAX_QUERY_BYTES: Final = 16 * 1024

MAX_HEADERS: Final = 100

MAX_HEADER_BYTES: Final = 32 * 1024

BODY_TIMEOUT_S: Final = 20.0
"""How long a body may take to arrive."""

COOKIE: Final = "perdure_token"

REMEMBERED_MS: Final = 1000
"""How long a token that was read stays in memory: after it a revoked token is refused."""

MOST_REMEMBERED: Final = 10_000

LOCAL: Final = Caller(name="local", role="admin")
"""The caller on this machine while the store has no tokens."""

ANYONE: Final = Caller(name="", role="")
"""The caller of a route that lets everyone in."""


class Gate:
    """Admits the bearers of tokens; while the store has no tokens, the callers on this machine.

    The engine's authorizer decides what a role may ask for.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._rates = Rates()
        self._read: OrderedDict[str, tuple[int, TokenRow | None]] = OrderedDict()
        self._has_tokens: tuple[int, bool] = (-REMEMBERED_MS, False)

    @property
    def _host(self) -> Host:
        return host_of_engine(self._engine)

    async def admit(self, request: Request, endpoint: Endpoint) -> Caller:
        """The caller. Raises `Refusal`, or `Denied` if the caller's role is not enough."""
        _require_bounds(request)
        require_same_origin(request)
        if endpoint.permission is None:
            return ANYONE
        caller = await self._caller(request)
        if caller.token_id is not None:
            self._rates.spend(caller.token_id, elapsed_ms())
        self._require_permission(caller, endpoint)
        return caller

    def _require_permission(self, caller: Caller, endpoint: Endpoint) -> None:
        permits = getattr(self._host.authorizer, "permits", None) or Roles().permits
        permission = endpoint.permission or Permission.READ
        refusal = permits(permission, caller.actor)
        if refusal is not None:
            raise Denied(
                f"{caller.name!r} ({caller.role or 'no role'}) may not {permission}: {refusal}",
                "ask for a token with another role",
                refusal,
            )
        if endpoint.store_wide and caller.scope is not None:
            raise Refusal(
                403,
                "forbidden",
                f"this shows the whole store, and your token is for scope {caller.scope!r}",
                "use a token without a scope",
            )

    async def _caller(self, request: Request) -> Caller:
        text = _token_of(request)
        if text is not None:
            return await self.bearer(text)
        if await self._needs_token():
            raise _unauthorized("the request has no token", "send 'Authorization: Bearer TOKEN'")
        if not is_local(request):
            raise _unauthorized(
                "the request does not come from this machine, and has no token",
                "make a token with 'perdure token create', and send it",
            )
        return LOCAL

    async def bearer(self, text: str) -> Caller:
        """The bearer of a token. Raises `Refusal` if the token is not valid."""
        parts = parts_of(text)
        if parts is None:
            raise _unauthorized("the token is malformed", "send a token as it was shown")
        token_id, secret = parts
        row = await self._token(token_id)
        refusal = refusal_of(row, secret, self._host.dispatcher.sources.now_ms())
        if refusal is not None or row is None:
            self._rates.spend("unknown tokens", elapsed_ms())
            raise _unauthorized(refusal or "the token is not known", "ask for another token")
        return bearer_of(row)

    async def _token(self, token_id: str) -> TokenRow | None:
        now = elapsed_ms()
        read_ms, row = self._read.get(token_id, (-REMEMBERED_MS, None))
        if now - read_ms >= REMEMBERED_MS:
            row = await self._host.dispatcher.store.access.token(token_id)
            self._read[token_id] = now, row
            self._read.move_to_end(token_id)
            while len(self._read) > MOST_REMEMBERED:
                self._read.popitem(last=False)
        return row

    async def _needs_token(self) -> bool:
        """Whether the store has tokens. Once it has, it has them for ever: revoked ones count."""
        read_ms, found = self._has_tokens
        now = elapsed_ms()
        if not found and now - read_ms >= REMEMBERED_MS:
            found = await self._host.dispatcher.store.access.has_tokens()
            self._has_tokens = now, found
        return found

    def forget(self) -> None:
        """Read tokens anew: this process has changed them."""
        self._read.clear()
        self._has_tokens = (-REMEMBERED_MS, False)

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


def _token_of(request: Request) -> str | None:
    """The token that a request carries, if any."""
    header = request.headers.get("authorization")
    if header is not None:
        kind, _, text = header.partition(" ")
        if kind.lower() != "bearer" or not text:
            raise _unauthorized(
                "the header Authorization holds no bearer token",
                "send 'Authorization: Bearer TOKEN'",
            )
        return text.strip()
    return request.cookies.get(COOKIE)


def _unauthorized(detail: str, remedy: str) -> Refusal:
    return Refusal(401, "unauthorized", detail, remedy, {"WWW-Authenticate": "Bearer"})


def _require_bounds(request: Request) -> None:
    if len(request.scope.get("query_string", b"")) > MAX_QUERY_BYTES:
        raise Refusal(
            414, "too-large", f"the query is over {MAX_QUERY_BYTES:,} bytes", "ask for less"
        )
    sizes = [len(name) + len(value) for name, value in request.headers.raw]
    if len(sizes) > MAX_HEADERS or sum(sizes) > MAX_HEADER_BYTES:
        raise Refusal(
            431,
            "too-large",
            f"there are more than {MAX_HEADERS} headers, or more than {MAX_HEADER_BYTES:,} bytes",
            "send fewer headers",
        )


def _too_large() -> Refusal:
    return Refusal(
        413,
        "too-large",
        f"the body is over {MAX_BODY_BYTES:,} bytes",
        "send less, or store large values as artifacts",
        {"Connection": "close"},
    )
