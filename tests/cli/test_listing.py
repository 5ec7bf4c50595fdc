"""`perdure runs list` and `count`, `perdure sql`, and acts on all runs that match."""

import asyncio
import json
from pathlib import Path

import pytest

from perdure import Engine, RunStatus
from perdure.cli.exit_codes import REFUSED
from tests.cli import orders
from tests.cli.conftest import Command
from tests.client.engines import until_store


def keys(command: Command, url: str, *arguments: str) -> set[str]:
    """The start keys of the runs that a list has."""
    said = command("runs", "list", *arguments, "-o", "jsonl", "--store", url)
    assert said.code == 0, said.err
    return {json.loads(line)["key"] for line in said.out.splitlines()}


def test_runs_are_listed_by_any_filter_as_option_and_as_condition(
    perdure_command: Command, orders_url: str
) -> None:
    everything = {orders.COMPLETED, orders.FAILED, orders.WAITING}
    assert keys(perdure_command, orders_url) == everything
    assert keys(perdure_command, orders_url, "--status", "failed") == {orders.FAILED}
    assert keys(perdure_command, orders_url, "--where", "status=failed,completed") == {
        orders.FAILED,
        orders.COMPLETED,
    }
    both = ("--program", "orders.checkout", "--where", "status=completed created<1h")
    assert keys(perdure_command, orders_url, *both) == {orders.COMPLETED}
    assert keys(perdure_command, orders_url, "--where", "created>1h") == set()
    assert keys(perdure_command, orders_url, "--key-prefix", "wait") == {orders.WAITING}


def test_runs_are_listed_and_counted_by_tag(perdure_command: Command, orders_url: str) -> None:
    async def start() -> None:
        async with Engine(orders_url) as engine:
            await engine.start(orders.checkout("T"), key="tagged", tags={"customer": "acme"})

    asyncio.run(start())
    assert keys(perdure_command, orders_url, "--tag", "customer=acme") == {"tagged"}
    said = perdure_command("runs", "count", "--where", "tag.customer=acme", "--store", orders_url)
    assert (said.code, said.out.strip()) == (0, "1")
    said = perdure_command("runs", "list", "--tag", "customer", "--store", orders_url)
    assert (said.code, "write --tag NAME=VALUE" in said.err) == (REFUSED, True)


def test_table_fits_and_limit_says_that_more_follow(
    perdure_command: Command, orders_url: str
) -> None:
    said = perdure_command("runs", "list", "--limit", 2, "--store", orders_url)
    assert said.out.splitlines()[0].split() == [
        *("RUN", "PROGRAM", "STATUS", "CREATED", "TOOK", "KEY", "TAGS")
    ]
    assert len(said.out.splitlines()) == 3
    assert "more follow" in said.err
    ids = perdure_command("runs", "list", "-o", "ids", "--store", orders_url).out.split()
    assert set(ids) == set(asyncio.run(orders.run_ids(orders_url)).values())


@pytest.mark.parametrize("where", ["status=broken", "nonsense", "created>soon"])
def test_wrong_condition_is_refused(
    perdure_command: Command, sqlite_orders: str, where: str
) -> None:
    said = perdure_command("runs", "list", "--where", where, "--store", sqlite_orders)
    assert (said.code, said.out) == (REFUSED, "")


def test_query_prints_rows_and_may_not_write(perdure_command: Command, orders_url: str) -> None:
    query = "SELECT key, status FROM perdure_v1_runs ORDER BY key"
    said = perdure_command("sql", query, "--store", orders_url)
    assert said.code == 0, said.err
    assert [line.split() for line in said.out.splitlines()] == [
        ["KEY", "STATUS"],
        ["completed", "completed"],
        ["failed", "failed"],
        ["waiting", "blocked"],
    ]
    said = perdure_command("sql", "DELETE FROM perdure_run", "--store", orders_url)
    assert said.code == REFUSED


def test_acts_on_what_matches_are_shown_confirmed_and_summed_up(
    perdure_command: Command, orders_url: str, tmp_path: Path
) -> None:
    where = ("--where", "status=blocked program=orders.checkout", "--store", orders_url)
    run = asyncio.run(orders.run_ids(orders_url))[orders.WAITING]
    said = perdure_command("runs", "cancel", *where, "--dry-run")
    assert (said.code, said.out.split()) == (0, [run])
    said = perdure_command("runs", "cancel", *where)
    assert (said.code, "1 runs match: pass --yes" in said.err) == (REFUSED, True)
    said = perdure_command("runs", "cancel", run, *where)
    assert (said.code, "given twice" in said.err) == (REFUSED, True)
    said = perdure_command("runs", "cancel", "--where", "", "--yes", "--store", orders_url)
    assert (said.code, "has no condition" in said.err) == (REFUSED, True)

    async def act() -> None:
        async with Engine(orders_url) as engine:
            for number in range(3):
                await engine.start(orders.checkout(str(number)), key=f"more-{number}")

            async def all_wait() -> bool:
                return (await engine.count(status="blocked")).runs == 4

            await until_store(all_wait)
            said = await asyncio.to_thread(perdure_command, "runs", "cancel", *where, "--yes")
            assert said.code == 0, said.err
            assert said.out.splitlines()[-1] == "accepted 4"
            assert await engine.handle(run).status() in (
                RunStatus.CANCELLED,
                RunStatus.CANCELLING,
                RunStatus.BLOCKED,
            )

    asyncio.run(act())
