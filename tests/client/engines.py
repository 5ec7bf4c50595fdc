"""What tests of engines share: how one is opened, what its journal says, and that its books are sound."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from perdure import Engine, Handle, RunStatus, Settings
from perdure.core.journal import events as e

E = TypeVar("E", bound=e.Event)

ALWAYS_REPLAY = Settings(warm_runs=0)
AT_ONCE = Settings(grace=0)
"""A stop that waits for nobody."""


async def assert_sound(engine: Engine) -> None:
    for report in (await engine.audit(), await engine.verify()):
        assert report.is_clean, str(report)


@asynccontextmanager
async def opened(
    url: str, settings: Settings | None = None, queues: tuple[str, ...] = ()
) -> AsyncIterator[Engine]:
    """An engine whose books must be sound when the test is through with it."""
    async with Engine(url, settings=settings, queues=queues) as engine:
        yield engine
        await assert_sound(engine)


@asynccontextmanager
async def killed(
    url: str, settings: Settings | None = None, queues: tuple[str, ...] = ()
) -> AsyncIterator[Engine]:
    """An engine that hands nothing back and tells nobody, as one whose process dies."""
    engine = Engine(url, settings=settings, queues=queues)
    await engine.open()
    try:
        yield engine
        await assert_sound(engine)
    finally:
        await engine._abort()


async def journal(engine: Engine, handle: Handle[Any]) -> list[e.Event]:
    """What is durable of a run now."""
    return [entry.event for entry in await store_of(engine).entries(handle.run_id)]


async def recorded(engine: Engine, handle: Handle[Any], kind: type[E]) -> list[E]:
    """The durable events of one kind."""
    return [event for event in await journal(engine, handle) if isinstance(event, kind)]


def store_of(engine: Engine) -> Any:
    assert engine._hosting is not None
    return engine._hosting.host.store


async def until(what: Callable[[], bool]) -> None:
    """Wait for something that another task of this loop, or a thread, brings about."""

    async def ask() -> bool:
        return what()

    await until_store(ask)


async def until_store(ask: Callable[[], Awaitable[bool]]) -> None:
    """Wait for something that only the store knows."""
    async with asyncio.timeout(10):
        while not await ask():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.005)


async def until_status(handle: Handle[Any], status: RunStatus) -> None:
    async def ask() -> bool:
        return await handle.status() is status

    await until_store(ask)


async def until_recorded(engine: Engine, handle: Handle[Any], kind: type[E], count: int = 1) -> E:
    """The event of that kind and number, once it is durable."""
    found: list[E] = []

    async def ask() -> bool:
        nonlocal found
        found = await recorded(engine, handle, kind)
        return len(found) >= count

    await until_store(ask)
    return found[count - 1]
