"""Resources of tasks, such as clients, pools and models: made when a task first asks, closed with the engine."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from contextvars import Context
from functools import partial
from inspect import isawaitable
from typing import Any, NamedTuple

from perdure.core.errors import EngineClosed, InputError

Make = Callable[[], Any]
"""Returns a resource, an awaitable of one, or a context manager that gives one."""


class _Kept(NamedTuple):
    made: asyncio.Future[Any]
    may_close: asyncio.Event
    keeper: asyncio.Task[None]


class Resources:
    """One per host. Each resource is made, entered and closed by an asyncio task of its own, its keeper."""

    def __init__(self, makers: Mapping[type, Make]) -> None:
        self._makers = makers
        self._kept: dict[type, _Kept] = {}
        """In the order of creation."""
        self._is_closed = False

    async def get(self, kind: type) -> Any:
        """The resource of that type. If it can't be made the caller gets the reason, and the next one tries again."""
        make = self._makers.get(kind)
        if make is None:
            raise InputError(
                f"this engine has no resource {kind.__qualname__!r}",
                "pass a function that makes it: Engine(url, resources={Client: make_client})",
            )
        if self._is_closed:
            raise EngineClosed("the engine is closing", "the step is retried by another host")
        kept = self._kept.get(kind)
        if kept is None:
            kept = self._kept[kind] = self._keep(kind, make)
        # One caller that is cancelled must not cancel it for the others.
        return await asyncio.shield(kept.made)

    def _keep(self, kind: type, make: Make) -> _Kept:
        loop = asyncio.get_running_loop()
        made: asyncio.Future[Any] = loop.create_future()
        may_close = asyncio.Event()
        # Not in the context of the task that asks first: the resource serves others, too.
        keeper = loop.create_task(_keeper(make, made, may_close), context=Context())
        keeper.add_done_callback(partial(self._forget, kind, made))
        return _Kept(made, may_close, keeper)

    def _forget(self, kind: type, made: asyncio.Future[Any], keeper: asyncio.Task[None]) -> None:
        error = None if keeper.cancelled() else keeper.exception()
        if not made.done():
            made.set_exception(error or EngineClosed("the engine was closed", "open an engine"))
            made.exception()  # there may be no caller left that gets it
            self._kept.pop(kind, None)
        elif error is not None:
            asyncio.get_running_loop().call_exception_handler(
                {"message": f"closing resource {kind.__qualname__!r} failed", "exception": error}
            )

    async def close(self) -> None:
        """Close all, the newest first."""
        self._is_closed = True
        for kept in reversed(list(self._kept.values())):
            kept.may_close.set()
            await asyncio.wait([kept.keeper])

    def kill(self) -> None:
        """Cancel what is still open."""
        self._is_closed = True
        for kept in self._kept.values():
            kept.keeper.cancel()


async def _keeper(make: Make, made: asyncio.Future[Any], may_close: asyncio.Event) -> None:
    async with _entered(make) as resource:
        made.set_result(resource)
        await may_close.wait()


@asynccontextmanager
async def _entered(make: Make) -> AsyncIterator[Any]:
    given = make()
    if isawaitable(given):
        given = await given
    if isinstance(given, AbstractAsyncContextManager):
        async with given as resource:
            yield resource
    elif isinstance(given, AbstractContextManager):
        with given as resource:
            yield resource
    else:
        yield given
