"""`perdure schedule`: reads and changes schedules without the user's code; hosts start their runs."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from perdure import Cron, Engine, Every, Once
from perdure.cli.exit_codes import FAILED, REFUSED
from tests.cli import orders
from tests.cli.conftest import Command, Said
from tests.client.engines import assert_sound, store_of, until_store

FAR = datetime(2090, 1, 1, tzinfo=UTC)


async def fill(address: str) -> None:
    """Leave a schedule by cron, one by interval in a scope, and one that ticks once."""
    async with Engine(address) as engine:
        nightly = Cron("30 2 * * *", zone="Europe/Berlin")
        await engine.schedule("nightly", orders.many(0), nightly, jitter=60)
        await engine.schedule("hourly", orders.many(0), Every(3600), scope="shop", overlap="allow")
        await engine.schedule("once", orders.checkout("A"), Once(FAR))


@pytest.fixture
def sqlite_schedules(tmp_path: Path) -> str:
    address = f"sqlite:///{tmp_path}/orders.db"
    asyncio.run(fill(address))
    return address


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    address = f"sqlite:///{tmp_path}/orders.db"
    if request.param == "postgres":
        address = request.getfixturevalue("emptied_postgres")
    asyncio.run(fill(address))
    return address


async def beside(command: Command, *arguments: object) -> Said:
    """Runs a command in another thread, beside the host."""
    return await asyncio.to_thread(command, *arguments)


def test_schedules_are_listed_with_their_next_tick(perdure_command: Command, url: str) -> None:
    said = perdure_command("schedule", "list", "--store", url)
    assert (said.code, said.err) == (0, "")
    titles, nightly, once, hourly = said.out.splitlines()
    assert titles.split() == ["SCOPE", "NAME", "PROGRAM", "STATE", "NEXT", "TIMETABLE"]
    assert nightly.split()[:4] == ["nightly", "orders.many", "ticking", "in"]
    assert "Europe/Berlin" in nightly
    assert "once, at 2090-01-01" in once
    assert hourly.split()[:4] == ["shop", "hourly", "orders.many", "ticking"]
    scoped = perdure_command("schedule", "list", "--scope", "shop", "-o", "ids", "--store", url)
    assert scoped.out.split() == ["hourly"]


def test_shown_schedule_has_rules_arguments_and_instants(
    perdure_command: Command, url: str
) -> None:
    said = perdure_command("schedule", "show", "nightly", "--store", url)
    assert said.out.splitlines()[0] == "nightly  orders.many  ticking"
    assert "overlap skip, catch-up 1h 0m, jitter 1m 0s" in said.out
    assert 'arguments {"count":0}' in said.out
    shown = json.loads(
        perdure_command("schedule", "show", "once", "-o", "json", "--store", url).out
    )
    assert shown["next"] == ["2090-01-01T00:00:00.000+00:00"]
    assert (shown["program"], shown["state"], shown["ticks"]) == ("orders.checkout", "ticking", [])


def test_next_instants_are_those_of_the_timetable(perdure_command: Command, url: str) -> None:
    at = ("--scope", "shop", "--store", url)
    said = perdure_command("schedule", "next", "hourly", "--count", 3, "-o", "ids", *at)
    first, second, third = map(datetime.fromisoformat, said.out.split())
    assert second - first == third - second == timedelta(hours=1)


def test_paused_schedule_says_why_and_has_no_next_tick_until_resumed(
    perdure_command: Command, url: str
) -> None:
    at = ("nightly", "--store", url)
    said = perdure_command("schedule", "pause", *at, "--reason", "stocktaking")
    assert (said.code, said.out) == (0, "paused 'nightly'; its open runs continue\n")
    assert "paused  (stocktaking)" in perdure_command("schedule", "show", *at).out
    said = perdure_command("schedule", "next", *at, "-o", "ids")
    assert (said.code, said.out, "schedule resume nightly" in said.err) == (0, "", True)
    assert perdure_command("schedule", "resume", *at).code == 0
    assert len(perdure_command("schedule", "next", *at, "-o", "ids").out.split()) == 10


def test_trigger_prints_the_run_that_a_host_starts(perdure_command: Command, url: str) -> None:
    async def trigger() -> None:
        async with Engine(url) as engine:
            at = ("schedule", "trigger", "nightly", "--id", "ticket-17", "--store", url)
            first, again = await beside(perdure_command, *at), await beside(perdure_command, *at)
            assert (first.code, first.out) == (0, again.out), first.err
            assert await engine.handle(first.out.strip()).result(60) == 0
            ticks = ("schedule", "ticks", "nightly", "--store", url)

            async def is_noted() -> bool:
                return bool((await beside(perdure_command, *ticks, "-o", "ids")).out)

            await until_store(is_noted)
            said = await beside(perdure_command, *ticks)
            assert f"{first.out.strip()}, triggered" in said.out
            await assert_sound(engine)

    asyncio.run(trigger())


def test_trigger_waits_in_the_store_while_no_host_has_the_program(
    perdure_command: Command, url: str
) -> None:
    at = ("schedule", "trigger", "nightly", "--id", "later", "--wait", 0, "--store", url)
    said = perdure_command(*at)
    assert (said.code, said.out, "no host has started" in said.err) == (0, "", True)

    async def serve() -> None:
        async with Engine(url) as engine:

            async def is_started() -> bool:
                key = "schedule:nightly:trigger:later"
                return await engine.find(orders.many, key) is not None

            await until_store(is_started)
            await assert_sound(engine)

    asyncio.run(serve())
    assert perdure_command(*at).out.startswith("r_")


def test_trigger_whose_run_can_not_start_says_why(perdure_command: Command, url: str) -> None:
    async def trigger() -> Said:
        async with Engine(url) as engine:
            schedules = store_of(engine).schedules
            (stored,) = await schedules.all("", "nightly")
            changed = msgspec.structs.replace(
                stored, payload=b'{"count":"much"}', revision=stored.revision + 1
            )
            assert await schedules.write(changed)
            return await beside(perdure_command, "schedule", "trigger", "nightly", "--store", url)

    said = asyncio.run(trigger())
    assert (said.code, said.out) == (FAILED, "")
    assert "the run can't be started: workflow 'orders.many' can't begin" in said.err


def test_backfill_starts_each_tick_of_the_range_once(perdure_command: Command, url: str) -> None:
    days = ("schedule", "backfill", "nightly", "2026-01-01", "2026-01-04", "--store", url)
    dry = perdure_command(*days, "--dry-run")
    assert dry.out.split() == [f"2026-01-0{day}T01:30:00.000+00:00" for day in (1, 2, 3)]
    assert perdure_command(*days).out == "'nightly': hosts start the runs of 3 ticks\n"
    perdure_command(*days)

    async def serve() -> None:
        async with Engine(url) as engine:

            async def are_over() -> bool:
                return (await engine.count(status="completed")).runs == 3

            await until_store(are_over)
            await assert_sound(engine)

    asyncio.run(serve())
    said = perdure_command("runs", "count", "--program", "orders.many", "--store", url)
    assert said.out == "3\n"


def test_deleted_schedule_is_gone(perdure_command: Command, url: str) -> None:
    assert perdure_command("schedule", "delete", "once", "--store", url).code == 0
    said = perdure_command("schedule", "show", "once", "--store", url)
    assert (said.code, "perdure schedule list" in said.err) == (REFUSED, True)


@pytest.mark.parametrize(
    "arguments",
    [
        *(["show", "no"], ["ticks", "no"], ["next", "no"], ["pause", "no"], ["resume", "no"]),
        *(["trigger", "no"], ["delete", "no"], ["backfill", "no", "2026-01-01", "2026-01-02"]),
        *(["ticks", "nightly", "--limit", "0"], ["next", "nightly", "--count", "1001"]),
        ["backfill", "nightly", "soon", "2026-01-02"],
        ["backfill", "nightly", "2026-01-02", "2026-01-01"],
        ["backfill", "nightly", "1990-01-01", "2026-01-01", "--dry-run"],
    ],
)
def test_mistake_is_refused(
    perdure_command: Command, sqlite_schedules: str, arguments: list[str]
) -> None:
    said = perdure_command("schedule", *arguments, "--store", sqlite_schedules)
    assert (said.code, said.out) == (REFUSED, "")
    assert said.err.startswith("perdure: ")
