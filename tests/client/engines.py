"""Shared by tests of engines: open or kill an engine, read its journals, wait for a state, check its books."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest

from perdure import Engine, Handle, RunCancelled, RunStatus, Settings, SyncEngine
from perdure.core.journal import events as e
from perdure.testing.probe import Probe

E = TypeVar("E", bound=e.Event)

ALWAYS_REPLAY = Settings(warm_memory=0)
AT_ONCE = Settings(grace=0)
"""A stop that does not wait for running tasks."""


async def assert_sound(engine: Engine) -> None:
    for report in (await engine.audit(), await engine.verify()):
        assert report.is_clean, str(report)


@asynccontextmanager
async def opened(
    url: str, settings: Settings | None = None, queues: tuple[str, ...] = ()
) -> AsyncIterator[Engine]:
    """An open engine. Its books must be sound at the end of the block."""
    async with Engine(url, settings=settings, queues=queues) as engine:
        yield engine
        await assert_sound(engine)


@asynccontextmanager
async def killed(
    url: str, settings: Settings | None = None, queues: tuple[str, ...] = ()
) -> AsyncIterator[Engine]:
    """An engine that stops as if its process died: it hands nothing back."""
    engine = Engine(url, settings=settings, queues=queues)
    await engine.open()
    try:
        yield engine
        await assert_sound(engine)
    finally:
        await Probe(engine).abort()


async def assert_cancelled(handle: Handle[Any]) -> None:
    """Wait until the run is over: it must end as cancelled."""
    with pytest.raises(RunCancelled):
        await handle.result(60)


async def journal(engine: Engine, handle: Handle[Any]) -> list[e.Event]:
    """The durable events of a run."""
    return [entry.event for entry in await store_of(engine).entries(handle.run_id)]


async def recorded(engine: Engine, handle: Handle[Any], kind: type[E]) -> list[E]:
    """The durable events of one kind."""
    return [event for event in await journal(engine, handle) if isinstance(event, kind)]


def store_of(engine: Engine | SyncEngine) -> Any:
    return Probe(engine).store


async def until(what: Callable[[], bool]) -> None:
    """Wait until a condition holds that another task of this loop, or a thread, fulfils."""

    async def ask() -> bool:
        return what()

    await until_store(ask)


async def until_store(ask: Callable[[], Awaitable[bool]]) -> None:
    """Wait until a condition of the store holds."""
    async with asyncio.timeout(60):
        while not await ask():  # noqa: ASYNC110 - the store notifies no one
            await asyncio.sleep(0.005)


async def until_status(handle: Handle[Any], status: RunStatus) -> None:
    async def ask() -> bool:
        return await handle.status() is status

    await until_store(ask)


async def until_published(handle: Handle[Any], **values: Any) -> None:
    """Wait until these are the published values of the run."""

    async def ask() -> bool:
        return await handle.published() == values

    await until_store(ask)


async def until_recorded(engine: Engine, handle: Handle[Any], kind: type[E], count: int = 1) -> E:
    """Wait for the event with number `count` of that kind."""
    found: list[E] = []

    async def ask() -> bool:
        nonlocal found
        found = await recorded(engine, handle, kind)
        return len(found) >= count

    await until_store(ask)
    return found[count - 1]
