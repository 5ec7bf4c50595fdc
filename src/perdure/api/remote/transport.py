"""Requests to a server of the API, and its problems as the errors that the client knows."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from perdure.core import errors as known
from perdure.core.errors import (
    Denied,
    EngineClosed,
    InputError,
    KeyReused,
    KeySpent,
    LimitReached,
    PerdureError,
    StoreUnavailable,
)

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")

TIMEOUT_S: Final = 90.0
"""Longer than the longest wait that a request may ask for."""

_NOTHING: Mapping[str, str] = MappingProxyType({})


class Transport:
    """One client of HTTP, with its connections."""

    def __init__(self, url: str, token: str | None, client: "httpx2.AsyncClient | None") -> None:
        self._url = url.rstrip("/")
        self._token = token
        self._given = client
        self._client: httpx2.AsyncClient | None = None

    async def open(self) -> None:
        if self._given is not None:
            self._client = self._given
            return
        try:
            import httpx2  # noqa: PLC0415 - it is an extra
        except ModuleNotFoundError:
            raise InputError(
                "perdure.connect needs httpx2, which is not installed",
                "install it: pip install 'perdure[client]'",
            ) from None
        self._client = httpx2.AsyncClient(timeout=TIMEOUT_S)

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None and self._given is None:
            await client.aclose()

    @property
    def _open(self) -> "httpx2.AsyncClient":
        if self._client is None:
            raise EngineClosed(
                "the connection is not open", "use it inside `async with perdure.connect(...)`"
            )
        return self._client

    def _headers(self, more: Mapping[str, str]) -> dict[str, str]:
        own = {} if self._token is None else {"Authorization": f"Bearer {self._token}"}
        preferences = ", ".join(filter(None, ("integers=exact", more.get("Prefer", ""))))
        return {**own, **more, "Prefer": preferences}

    async def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, Any] = _NOTHING,
        headers: Mapping[str, str] = _NOTHING,
    ) -> tuple[int, bytes]:
        """The status and content of the answer. Raises the error that a refusal stands for."""
        content = None if method == "GET" else msgspec.json.encode({} if body is None else body)
        sent = self._headers({**headers, "Content-Type": "application/json"})
        client = self._open
        try:
            answer = await client.request(
                method, self._url + path, params=dict(query), headers=sent, content=content
            )
        except _transport_errors() as error:
            raise _unreachable(self._url, error) from error
        if answer.status_code >= 400:
            raise error_of(answer.status_code, answer.content)
        return answer.status_code, answer.content

    async def read(self, path: str, wanted: type[T], query: Mapping[str, Any] = _NOTHING) -> T:
        """The answer to a GET, as a value of that type."""
        _, content = await self.send("GET", path, query=query)
        return msgspec.json.decode(content, type=wanted)

    @asynccontextmanager
    async def events(
        self, path: str, query: Mapping[str, Any]
    ) -> AsyncGenerator[AsyncGenerator[tuple[str, bytes], None], None]:
        """The names and data of the events of a stream."""
        headers = self._headers({"Accept": "text/event-stream"})
        try:
            async with self._open.stream(
                "GET", self._url + path, params=dict(query), headers=headers
            ) as answer:
                if answer.status_code >= 400:
                    raise error_of(answer.status_code, await answer.aread())
                yield _parsed(answer)
        except _transport_errors() as error:
            raise _unreachable(self._url, error) from error


async def _parsed(answer: "httpx2.Response") -> AsyncGenerator[tuple[str, bytes], None]:
    name, data = "", b""
    async for line in answer.aiter_lines():
        if line.startswith("event: "):
            name = line[7:]
        elif line.startswith("data: "):
            data = line[6:].encode()
        elif not line and name:
            yield name, data
            name, data = "", b""


def _transport_errors() -> tuple[type[Exception], ...]:
    import httpx2  # noqa: PLC0415 - it is an extra

    return (httpx2.TransportError,)


def _unreachable(url: str, error: Exception) -> StoreUnavailable:
    what = str(error) or type(error).__name__
    return StoreUnavailable(f"{url} can't be reached ({what})", "is the server up? try again later")


def error_of(status: int, content: bytes) -> PerdureError:
    """The error that a problem stands for, of the class that has its code."""
    try:
        problem: dict[str, Any] = msgspec.json.decode(content, type=dict[str, Any])
    except msgspec.DecodeError:
        problem = {}
    code, what = problem.get("code", ""), problem.get("detail", f"the server answered {status}")
    remedy = problem.get("remedy", "see the log of the server")
    run_id = problem.get("run_id", "")
    if code == KeyReused.code:
        return KeyReused(run_id, what, remedy)
    if code == KeySpent.code:
        return KeySpent(run_id, problem.get("run_status", ""), what, remedy)
    if code == LimitReached.code:
        return LimitReached(what, remedy, problem.get("retry_after", 0))
    if code == Denied.code:
        return Denied(what, remedy, problem.get("denial", ""))
    kind = _BY_CODE.get(code)
    if kind is None:
        error = PerdureError(f"{what} ({status})", remedy)
        error.code = code or PerdureError.code  # type: ignore[misc]
        return error
    return kind(what, remedy)


_BY_CODE: Final[dict[str, type[PerdureError]]] = {
    each.code: each
    for each in vars(known).values()
    if isinstance(each, type)
    and issubclass(each, PerdureError)
    and each.__init__ is PerdureError.__init__
}
"""The classes that are made of what happened and a remedy alone."""
