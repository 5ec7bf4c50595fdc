"""The routes of sessions, tokens and the audit log."""

from typing import Any, Final

import msgspec
from starlette.responses import Response

from perdure.api.doors import audit
from perdure.api.doors.gate import COOKIE, Gate
from perdure.api.doors.tokens import TokenWish, new_token
from perdure.api.endpoint import Endpoint, Reply
from perdure.api.exchange import Exchange
from perdure.api.problems import Refusal
from perdure.core.runs.authority import Permission
from perdure.store.access_table import TokenRow

SESSION_S: Final = 12 * 3600
"""How long a browser keeps the cookie."""


class SessionRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The token that a browser sends from now on."""

    token: str


class ShownToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token without its secret."""

    id: str
    label: str
    role: str
    scope: str | None
    created_at_ms: int
    expires_at_ms: int | None
    revoked_at_ms: int | None


class Tokens(msgspec.Struct, frozen=True):
    """All tokens, the newest first."""

    tokens: list[ShownToken]


class MadeToken(msgspec.Struct, frozen=True):
    """A new token. Its text is shown this once."""

    id: str
    token: str


def shown_token(row: TokenRow) -> ShownToken:
    names = ShownToken.__struct_fields__
    return ShownToken(**{name: getattr(row, name) for name in names})


async def begin_session(exchange: Exchange) -> Response:
    """Puts the token into a cookie that scripts can't read, and that other sites can't send."""
    body: SessionRequest = exchange.body
    gate: Gate = exchange.shared["gate"]
    await gate.bearer(body.token)
    response = Response(None, 204)
    _set_cookie(exchange, response, body.token, SESSION_S)
    return response


async def end_session(exchange: Exchange) -> Response:
    response = Response(None, 204)
    _set_cookie(exchange, response, "", 0)
    return response


def _set_cookie(exchange: Exchange, response: Response, value: str, age_s: int) -> None:
    request = exchange.request
    response.set_cookie(
        COOKIE,
        value,
        max_age=age_s,
        path=request.scope.get("root_path", "") or "/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )


async def list_tokens(exchange: Exchange) -> Tokens:
    return Tokens([shown_token(row) for row in await exchange.store.access.tokens()])


async def make_token(exchange: Exchange) -> Reply:
    wish: TokenWish = exchange.body
    made = new_token(wish, exchange.now_ms, exchange.host.dispatcher.sources.entropy)
    await exchange.store.access.add_token(made.row)
    gate: Gate = exchange.shared["gate"]
    gate.forget()
    return Reply(MadeToken(made.row.id, made.text), 201)


async def revoke_token(exchange: Exchange) -> Reply:
    name = exchange.part("token")
    if not await exchange.store.access.revoke_token(name, exchange.now_ms):
        raise Refusal(404, "not-found", f"there is no valid token {name!r:.100}", "see /v1/tokens")
    gate: Gate = exchange.shared["gate"]
    gate.forget()
    return Reply(None, 204)


_ADMIN: Final[dict[str, Any]] = {"permission": Permission.ADMINISTER, "store_wide": True}

DOORS: tuple[Endpoint, ...] = (
    Endpoint(
        method="POST",
        path="/v1/session",
        handler=begin_session,
        summary="Keep a token in a cookie of the browser.",
        permission=None,
        body=SessionRequest,
        status=204,
    ),
    Endpoint(
        method="DELETE",
        path="/v1/session",
        handler=end_session,
        summary="Forget the token of the browser.",
        permission=None,
        status=204,
    ),
    Endpoint(
        method="GET",
        path="/v1/tokens",
        handler=list_tokens,
        summary="The tokens, without their secrets.",
        reply=Tokens,
        command="perdure token list",
        **_ADMIN,
    ),
    Endpoint(
        method="POST",
        path="/v1/tokens",
        handler=make_token,
        summary="Make a token.",
        body=TokenWish,
        example={"label": "ci", "role": "operator", "expires_in": 7776000},
        reply=MadeToken,
        status=201,
        command="perdure token create LABEL",
        action="token.create",
        **_ADMIN,
    ),
    Endpoint(
        method="DELETE",
        path="/v1/tokens/{token}",
        handler=revoke_token,
        summary="Revoke a token: its bearer is refused from then on.",
        status=204,
        command="perdure token revoke {token}",
        action="token.revoke",
        **_ADMIN,
    ),
    Endpoint(
        method="GET",
        path="/v1/audit-log",
        handler=audit.show_log,
        summary="What was asked over the API, and by whom; the newest first.",
        query=audit.AuditQuery,
        reply=audit.AuditLog,
        command="perdure audit-log",
        **_ADMIN,
    ),
)
