"""Endpoints: a method and a path, what it takes and gives, and what its caller must be permitted to do."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.core.runs.authority import Permission

if TYPE_CHECKING:
    from perdure.api.exchange import Exchange

NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class Reply(msgspec.Struct, frozen=True):
    """What a handler answers, if it is not 200 with a value alone."""

    value: Any
    status: int = 200
    headers: Mapping[str, str] = NO_HEADERS


Handler = Callable[["Exchange"], Awaitable[Any]]
"""Answers a request with a value, a `Reply`, or a response of Starlette."""


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """One route of the API. The page about the API and the OpenAPI document are made from these.

    `query` and `body` are structures that the request must match, `reply` is the type of the answer. `permission` is
    what the caller needs; `None` lets everyone in. An endpoint that is `store_wide` shows what belongs to no scope, so
    a caller with a scope can't use it. `command` does the same on the command line; it may name parts of the path.
    """

    method: str
    path: str
    handler: Handler
    summary: str
    permission: Permission | None = Permission.READ
    store_wide: bool = False
    query: type[msgspec.Struct] | None = None
    body: type[msgspec.Struct] | None = None
    reply: Any = None
    status: int = 200
    streams: bool = False
    """Whether it also answers as a stream of events, for `Accept: text/event-stream`."""
    headers: tuple[str, ...] = ()
    """Headers of the request that it heeds."""
    media_type: str = "application/json"
    command: str = ""
    example: Any = None
    action: str | None = None
    """What the audit log calls the request; `None` if it is not recorded. The `type` of the body goes before it."""
    tags: tuple[str, ...] = field(default=())
