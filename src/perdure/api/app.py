"""The ASGI application: paths to endpoints, under any prefix, with or without a server of its own around it."""

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from perdure.api.answering import Answers, not_found
from perdure.api.doors.gate import Gate
from perdure.api.endpoint import Endpoint
from perdure.api.routes import endpoints
from perdure.client.engine import Engine
from perdure.client.served import is_open


class StaticPages(Protocol):
    """Files that are served beside the API."""

    def has(self, scope: Scope) -> bool: ...

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...


class ApiApp:
    """Serves an engine over HTTP. It opens and closes the engine, unless that is open already."""

    def __init__(self, engine: Engine, prefix: str = "", pages: StaticPages | None = None) -> None:
        self.engine = engine
        self._pages = pages
        self._prefix = prefix.rstrip("/")
        self._opened = False
        self.shared: dict[str, Any] = {}
        """What the requests of this server share, by name."""
        gate = self.shared["gate"] = Gate(engine)
        self._router = Router(self._routes(endpoints(), gate), redirect_slashes=False)
        self._router.default = _nowhere

    def _routes(self, table: Sequence[Endpoint], gate: Gate) -> list[Route]:
        by_path: dict[str, list[Endpoint]] = {}
        for each in table:
            by_path.setdefault(each.path, []).append(each)
        routes = []
        for path, group in by_path.items():
            answers = Answers(self.engine, gate, group, self.shared)
            route = Route(path, answers.answer)
            route.methods = None  # the endpoints say which there are
            routes.append(route)
        return routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            if self._prefix and scope["path"].startswith(f"{self._prefix}/"):
                scope = {**scope, "root_path": scope.get("root_path", "") + self._prefix}
            if self._pages is not None and self._pages.has(scope):
                await self._pages(scope, receive, send)
            else:
                await self._router(scope, receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1000})

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self.open()
        except Exception as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.close()
        await send({"type": "lifespan.shutdown.complete"})

    def stop_streams(self) -> None:
        """End all streams of events: they would keep a server from stopping."""
        self.shared.setdefault("stopping", asyncio.Event()).set()

    async def open(self) -> None:
        """Open the engine, unless the program around has opened it."""
        if not is_open(self.engine):
            await self.engine.open()
            self._opened = True

    async def close(self) -> None:
        """Close what `open` opened."""
        if self._opened:
            self._opened = False
            await self.engine.close()


async def _nowhere(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "http":
        response: Response = await not_found(Request(scope, receive))
        await response(scope, receive, send)
