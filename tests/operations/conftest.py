"""The places that the conformance suite runs on: files, and the two databases of the store."""

import functools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from perdure.operations import Ledger
from tests.operations.ledgers import BY_HAND, Clock, Open


@pytest.fixture(params=["files", "sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    return place_of(request, tmp_path)


def place_of(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """The arguments that say where a ledger is."""
    if request.param == "files":
        return {"base_path": str(tmp_path / "ledger")}
    if request.param == "sqlite":
        return {"store": f"sqlite:///{tmp_path}/store.db"}
    return {"store": request.getfixturevalue("emptied_postgres")}


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def opened(place: dict[str, str], clock: Clock) -> AsyncIterator[Open]:
    """Opens ledgers on the place of the test, and disposes of them after it."""
    ledgers = []

    def another(participant_id: str = "cli", **changes: Any) -> Ledger:
        make = functools.partial(
            Ledger, settings=BY_HAND, clock=clock, participant_id=participant_id
        )
        ledger = make(**(place | changes))
        ledgers.append(ledger)
        return ledger

    yield another
    for ledger in ledgers:
        await ledger.dispose()


@pytest.fixture
def ledger(opened: Open) -> Ledger:
    return opened()
