"""`perdure.connect`: an engine on the other side of an HTTP connection."""

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack
from urllib.parse import quote, urlsplit

import msgspec

from perdure.api.remote.handle import RemoteHandle
from perdure.api.remote.transport import Transport
from perdure.authoring.parameters import STORED_AS
from perdure.authoring.program import ProgramCall
from perdure.authoring.response import OK
from perdure.authoring.tags import TagValue
from perdure.client.admission_terms import StartTerms, terms_in_seconds
from perdure.client.engine_arguments import take_program
from perdure.client.runs.lists import Page
from perdure.client.start_keys import IfEnded
from perdure.core.codec import JsonCodec
from perdure.core.errors import InputError
from perdure.core.ids import RunId, parse_run_id
from perdure.store.rows.lists import RunCount

if TYPE_CHECKING:
    import httpx2

R = TypeVar("R")


def connect(
    url: str, *, token: str | None = None, client: "httpx2.AsyncClient | None" = None
) -> "RemoteEngine":
    """An engine behind an HTTP API: `async with perdure.connect("https://...", token=...) as engine:`.

    It starts runs, and gives handles with the verbs of `Handle`, without a connection to the store. `client` is one of
    httpx2 that you configured; it stays open. It needs `perdure[client]`.
    """
    if urlsplit(url).scheme not in ("http", "https"):
        raise InputError(
            f"{url!r:.200} is no address of a server", "pass one such as 'https://perdure.example'"
        )
    return RemoteEngine(Transport(url, token, client))


class RemoteEngine:
    """An engine over HTTP."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def __aenter__(self) -> Self:
        await self._transport.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._transport.close()

    async def start(
        self,
        call: ProgramCall[R],
        *,
        key: str | None = None,
        scope: str = "",
        tags: Mapping[str, TagValue] | None = None,
        if_ended: IfEnded = "return",
        **terms: Unpack[StartTerms],
    ) -> RemoteHandle[R]:
        """Start a run of a program that this process has, too; returns when the run is durable. As `Engine.start`."""
        program = take_program(call)
        arguments = dict(call.arguments)
        options: dict[str, Any] = {
            "scope": scope,
            "tags": dict(tags or {}),
            "if_ended": if_ended,
            **terms_in_seconds(terms),
        }
        if STORED_AS in arguments:
            options["params"] = msgspec.Raw(JsonCodec().encode(arguments.pop(STORED_AS)))
        payload = JsonCodec().encode(arguments)
        started = await self._start(program.name, msgspec.Raw(payload), key, options)
        return RemoteHandle(
            self._transport, RunId(started["run_id"]), program, is_new=started["is_new"]
        )

    async def start_named(
        self,
        program: str,
        input: Mapping[str, Any] | None = None,  # noqa: A002 - as in start_graph
        *,
        key: str | None = None,
        scope: str = "",
        tags: Mapping[str, TagValue] | None = None,
        version: str | None = None,
    ) -> RemoteHandle[Any]:
        """Start a run of a workflow or graph by its name, with arguments by name. Its result is plain JSON."""
        options = {"scope": scope, "tags": dict(tags or {}), "version": version}
        started = await self._start(program, dict(input or {}), key, options)
        return RemoteHandle(self._transport, RunId(started["run_id"]), is_new=started["is_new"])

    async def _start(
        self, name: str, given: Any, key: str | None, options: dict[str, Any]
    ) -> dict[str, Any]:
        headers = {} if key is None else {"Idempotency-Key": key}
        path = f"/v1/programs/{quote(name, safe='')}/runs"
        _, content = await self._transport.send(
            "POST", path, {"input": given, **options}, headers=headers
        )
        started: dict[str, Any] = msgspec.json.decode(content)
        return started

    def handle(self, run_id: str) -> RemoteHandle[Any]:
        """A handle of a run."""
        return RemoteHandle(self._transport, parse_run_id(run_id))

    async def runs(
        self,
        filters: Mapping[str, str] | None = None,
        *,
        after: str | None = None,
        limit: int = 100,
    ) -> Page:
        """A page of runs, newest first. The filters are parameters of `/v1/runs`, such as {"status": "failed"}."""
        query = {
            **(filters or {}),
            "limit": str(limit),
            **({} if after is None else {"after": after}),
        }
        return await self._transport.read("/v1/runs", Page, query)

    async def count(self, filters: Mapping[str, str] | None = None) -> RunCount:
        """How many runs a list has."""
        return await self._transport.read("/v1/runs/count", RunCount, filters or {})

    async def send(
        self,
        topic: str,
        key: object,
        value: object = None,
        *,
        code: int = OK,
        id: str | None = None,  # noqa: A002 - as in Engine.send
    ) -> None:
        """Send a signal to a topic and key; returns when it is durable."""
        path = f"/v1/topics/{quote(topic, safe='')}/{quote(str(key), safe='')}"
        await self._transport.send("POST", path, {"value": value, "code": code, "id": id})
