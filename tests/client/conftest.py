"""The engines that the tests of the client run on."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from perdure import Engine, Settings
from tests.client.engines import ALWAYS_REPLAY, opened

POSTGRES = pytest.param("postgres", marks=pytest.mark.postgres)

SETTINGS = {
    "replaying": ALWAYS_REPLAY,
    "stepwise": Settings(warm_memory=0, stepwise=True),
}


def _url(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if kind == "postgres":
        url: str = request.getfixturevalue("emptied_postgres")
        return url
    return f"sqlite:///{tmp_path}/engine.db" if kind == "sqlite" else "sqlite:///:memory:"


@pytest.fixture(params=["sqlite", "memory", POSTGRES])
def engine_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return _url(request.param, request, tmp_path)


@pytest.fixture(params=["sqlite", POSTGRES])
def shared_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store that outlives an engine, and that several engines can open."""
    return _url(request.param, request, tmp_path)


@pytest.fixture(params=["sqlite", "memory", "replaying", "stepwise", POSTGRES])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Settings | None]:
    """A URL and settings: `replaying` keeps no run in memory, `stepwise` commits each entry separately."""
    return _url(request.param, request, tmp_path), SETTINGS.get(request.param)


@pytest.fixture
async def engine(place: tuple[str, Settings | None]) -> AsyncIterator[Engine]:
    """An engine of each kind."""
    async with opened(*place) as engine:
        yield engine
