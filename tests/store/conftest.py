"""The stores that the conformance suite runs on; no fake is among them."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from perdure.store.opening import open_store
from perdure.store.sqlite.connections import connection
from perdure.store.store import Store
from tests.store.builders import assert_books_balance


@pytest.fixture(
    params=[
        "sqlite",
        "memory",
        "statement by statement",
        pytest.param("postgres", marks=pytest.mark.postgres),
    ]
)
def store_url(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> str:
    """`statement by statement`: as on systems where the native module is not compiled."""
    if request.param == "postgres":
        url: str = request.getfixturevalue("emptied_postgres")
        return url
    if request.param == "statement by statement":
        monkeypatch.setattr(connection, "compiled", None)
    return f"sqlite:///{tmp_path}/store.db" if request.param == "sqlite" else "sqlite:///:memory:"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def shared_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store that several hosts can open."""
    if request.param == "postgres":
        url: str = request.getfixturevalue("emptied_postgres")
        return url
    return f"sqlite:///{tmp_path}/store.db"


@pytest.fixture
def tampering() -> None:
    """Requested by tests that change the books behind the store's back."""


@pytest.fixture
async def store(store_url: str, request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    """An empty store of each kind. After each test its books must balance."""
    opened = await open_store(store_url)
    try:
        yield opened
        if "tampering" not in request.fixturenames:
            await assert_books_balance(opened)
    finally:
        await opened.close()


@pytest.fixture
async def hosts(
    shared_url: str, request: pytest.FixtureRequest
) -> AsyncIterator[tuple[Store, Store]]:
    """Two hosts on one store."""
    first, second = await open_store(shared_url), await open_store(shared_url)
    try:
        yield first, second
        if "tampering" not in request.fixturenames:
            await assert_books_balance(first)
    finally:
        await first.close()
        await second.close()
