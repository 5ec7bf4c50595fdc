"""What tests of the HTTP API may ask for: a store, the API of an engine on it, and a client in this process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from perdure import Engine
from perdure.api.app import ApiApp
from tests.cli import orders
from tests.client.engines import assert_sound

LOCAL = "http://localhost"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store."""
    if request.param == "postgres":
        url: str = request.getfixturevalue("emptied_postgres")
        return url
    return f"sqlite:///{tmp_path}/api.db"


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/api.db"


@asynccontextmanager
async def served(engine: Engine) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of the API of an engine. The books must be sound at the end."""
    api = ApiApp(engine)
    await api.open()
    try:
        transport = httpx2.ASGITransport(api)
        async with httpx2.AsyncClient(transport=transport, base_url=LOCAL) as client:
            yield client
        await assert_sound(engine)
    finally:
        api.stop_streams()
        await api.close()


@pytest.fixture
async def filled_url(store_url: str) -> str:
    """A store with a completed run, a failed one, and an open one that waits for a signal."""
    await orders.fill(store_url)
    return store_url


@pytest.fixture
async def reader(filled_url: str) -> AsyncIterator[httpx2.AsyncClient]:
    """The API of an engine that executes nothing."""
    async with served(Engine(filled_url, hosts=False)) as client:
        yield client


@pytest.fixture
async def api(store_url: str) -> AsyncIterator[httpx2.AsyncClient]:
    """The API of an engine that executes runs."""
    async with served(Engine(store_url)) as client:
        yield client
