"""`perdure bus` and `perdure dlq`: they read and ask without the user's code; engines with the bus publish."""

import asyncio
import json
from pathlib import Path

import pytest

from perdure import BusRefused, ContractEvent, Engine, Subscriber
from perdure.cli.exit_codes import REFUSED
from tests.cli import orders
from tests.cli.conftest import Command
from tests.client.engines import until_store

refused: list[ContractEvent] = []


def refuse(event: ContractEvent) -> None:
    refused.append(event)
    raise BusRefused("not this one", "look")


async def fill(address: str) -> str:
    """Leave a run whose end is a dead letter of the bus `hook`. Returns its id."""
    hook = Subscriber(refuse, name="hook", types=["RunCompleted"], tries=1)
    async with Engine(address, buses=[hook]) as engine:
        run = await engine.start(orders.many(0))
        await run.result()

        async def is_dead() -> bool:
            return bool(await engine.buses.dead_letters())

        await until_store(is_dead)
        return run.run_id


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    address = f"sqlite:///{tmp_path}/orders.db"
    if request.param == "postgres":
        address = request.getfixturevalue("emptied_postgres")
    return address, asyncio.run(fill(address))


def test_buses_are_listed_and_shown(perdure_command: Command, place: tuple[str, str]) -> None:
    url, _ = place
    said = perdure_command("bus", "list", "--store", url)
    assert (said.code, said.err) == (0, "")
    assert said.out.splitlines()[1].split() == ["hook", "ok", "0", "-", "0", "1", "all"]
    shown = json.loads(perdure_command("bus", "show", "hook", "-o", "json", "--store", url).out)
    assert (shown["name"], shown["behind"], shown["dead_letters"]) == ("hook", 0, 1)
    said = perdure_command("bus", "show", "hook", "--store", url)
    assert "0 runs behind, 0 replays, 1 dead letters" in said.out
    assert perdure_command("bus", "show", "other", "--store", url).code == REFUSED


def test_dead_letters_are_listed_replayed_and_dropped(
    perdure_command: Command, place: tuple[str, str]
) -> None:
    url, run_id = place
    said = perdure_command("dlq", "list", "--bus", "hook", "--store", url)
    row = said.out.splitlines()[1]
    assert row.split()[:2] == ["hook", run_id]
    assert row.endswith("not this one")
    (letter,) = json.loads(perdure_command("dlq", "list", "-o", "json", "--store", url).out)
    where = "hook", run_id, letter["seq"]
    assert "not this one" in perdure_command("dlq", "show", *where, "--store", url).out
    said = perdure_command("dlq", "replay", *where, "--store", url)
    assert (said.code, said.out) == (0, "1 events are published again\n")
    assert perdure_command("dlq", "list", "-o", "ids", "--store", url).out == ""
    assert '"replays": 1' in perdure_command("bus", "list", "-o", "json", "--store", url).out

    asyncio.run(fill(url))  # the bus refuses the replay, too, and the end of one more run
    said = perdure_command("dlq", "drop", "hook", "--store", url)
    assert said.code == 0
    assert perdure_command("dlq", "list", "-o", "ids", "--store", url).out == ""
    said = perdure_command("dlq", "drop", "hook", "--store", url)
    assert (said.code, "no such dead letter" in said.err) == (REFUSED, True)


def test_a_run_is_published_again_and_a_bus_removed(
    perdure_command: Command, place: tuple[str, str]
) -> None:
    url, run_id = place
    said = perdure_command("bus", "replay", "hook", run_id, "--store", url)
    assert (said.code, said.out) == (0, "the events of 1 runs are published again\n")
    said = perdure_command("bus", "replay", "hook", "--since", "2000-01-01", "--store", url)
    assert said.code == 0
    assert perdure_command("bus", "replay", "hook", "--store", url).code == REFUSED
    assert perdure_command("bus", "remove", "hook", "--store", url).code == 0
    assert perdure_command("bus", "list", "-o", "ids", "--store", url).out == ""
