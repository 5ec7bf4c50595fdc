"""`perdure limits`: what the store knows of limits, and operators' numbers, without the user's code."""

import asyncio
import json
from pathlib import Path

import pytest

from perdure import Engine, Limit, Rate, task, workflow
from perdure.cli.exit_codes import FAILED, REFUSED
from tests.cli.conftest import Command


@task(name="cli_limited_work")
async def work(n: int) -> int:
    return n


@workflow(name="cli_limited", limit=Limit("sync", running=1, rate=Rate(500, per=60)))
async def limited(n: int) -> int:
    return await work(n)


async def fill(url: str) -> None:
    """Leave a limit in two scopes, and a run that waits for its approval in one of them."""
    async with Engine(url) as engine:
        await (await engine.start(limited(1))).result()
        await engine.start(limited(2), scope="acme", approval=True)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    address = f"sqlite:///{tmp_path}/limits.db"
    if request.param == "postgres":
        address = request.getfixturevalue("emptied_postgres")
    asyncio.run(fill(address))
    return address


def test_list_shows_who_holds_and_who_waits(url: str, perdure_command: Command) -> None:
    said = perdure_command("limits", "list", "--store", url, "-o", "json")
    shown = {each["scope"]: each for each in json.loads(said.out)}
    assert {scope: each["waiting"] for scope, each in shown.items()} == {"": 0, "acme": 1}
    assert (shown["acme"]["running"], shown["acme"]["rate"]) == (1, 500)
    table = perdure_command("limits", "list", "--store", url).out
    assert "acme" in table
    assert "500/60 s" in table


def test_numbers_are_set_shown_and_reset(url: str, perdure_command: Command) -> None:
    options = ("--running", 5, "--rate", "10/2", "--reason", "a quiet night")
    assert perdure_command("limits", "set", "sync", *options, "--store", url).code == 0
    said = perdure_command("limits", "show", "sync", "--store", url, "-o", "json")
    (first, _) = json.loads(said.out)
    assert (first["running"], first["rate"], first["per_ms"]) == (5, 10, 2000)
    assert (first["is_set"], first["reason"]) == (True, "a quiet night")
    assert perdure_command("limits", "reset", "sync", "--store", url).code == 0
    assert perdure_command("limits", "reset", "sync", "--store", url).code == FAILED
    assert (
        json.loads(perdure_command("limits", "show", "other", "--store", url, "-o", "json").out)
        == []
    )


@pytest.mark.parametrize(
    ("options", "what"),
    [(("--rate", "fast"), "--rate is 'fast'"), ((), "nothing of limit 'sync' is set")],
)
def test_bad_numbers_are_refused(
    options: tuple[str, ...], what: str, tmp_path: Path, perdure_command: Command
) -> None:
    address = f"sqlite:///{tmp_path}/limits.db"
    asyncio.run(fill(address))
    said = perdure_command("limits", "set", "sync", *options, "--store", address)
    assert said.code == REFUSED
    assert what in said.err
