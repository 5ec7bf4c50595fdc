"""What tests of commands may ask for: a store that engines have filled, and the command line in this process."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from perdure.cli.app import run_command
from tests.cli import orders


class Said(NamedTuple):
    code: int
    out: str
    err: str


Command = Callable[..., Said]


@pytest.fixture
def perdure_command(capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs a command; no store is named but by its arguments."""

    def run(*arguments: object) -> Said:
        code = run_command([*map(str, arguments)])
        return Said(code, *capsys.readouterr())

    return run


@pytest.fixture(autouse=True)
def no_store_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PERDURE_STORE", raising=False)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def orders_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store with a completed run, a failed one, and an open one that waits for a signal."""
    url = f"sqlite:///{tmp_path}/orders.db"
    if request.param == "postgres":
        url = request.getfixturevalue("emptied_postgres")
    asyncio.run(orders.fill(url))
    return url


@pytest.fixture
def sqlite_orders(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/orders.db"
    asyncio.run(orders.fill(url))
    return url
