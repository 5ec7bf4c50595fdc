"""`perdure runs fork`, `retry` and `diff`."""

import asyncio
import json

from perdure import Engine
from perdure.cli.exit_codes import FAILED, REFUSED
from tests.cli import orders
from tests.cli.conftest import Command

TARGET = "tests.cli.orders:engine"


def result(url: str, run_id: str) -> object:
    async def ended() -> object:
        async with Engine(url) as engine:
            return await engine.handle(run_id).result(60)

    return asyncio.run(ended())


def test_fork_repeats_a_step_with_a_given_outcome_and_differs_in_it(
    perdure_command: Command, orders_url: str
) -> None:
    run, at = asyncio.run(orders.run_ids(orders_url))[orders.COMPLETED], ("--store", orders_url)
    fork = ("runs", "fork", run, TARGET, "root.0", "--set", 'root.0="by hand"')
    said = perdure_command(*fork, "--dry-run", *at)
    assert (said.code, json.loads(said.out)["source"]) == (0, run)
    said = perdure_command(*fork, "--id", "1", "--as", "ada", *at)
    assert (said.code, said.err) == (0, "")
    forked = said.out.strip()
    assert perdure_command(*fork, "--id", "1", "--as", "ada", *at).out.strip() == forked
    assert result(orders_url, forked) == "by hand"
    said = perdure_command("runs", "diff", run, forked, *at)
    assert said.code == FAILED
    assert "root.0" in said.out
    assert '"by hand"' in said.out
    said = perdure_command("runs", "diff", run, run, *at)
    assert (said.code, "0 of " in said.out) == (0, True)


def test_retry_starts_a_run_with_the_same_input(
    perdure_command: Command, sqlite_orders: str
) -> None:
    run, at = (
        asyncio.run(orders.run_ids(sqlite_orders))[orders.COMPLETED],
        ("--store", sqlite_orders),
    )
    said = perdure_command("runs", "retry", run, TARGET, *at)
    assert (said.code, said.err) == (0, "")
    assert result(sqlite_orders, said.out.strip()) == "receipt for A"


def test_wrong_step_or_outcome_is_refused(perdure_command: Command, sqlite_orders: str) -> None:
    run, at = (
        asyncio.run(orders.run_ids(sqlite_orders))[orders.COMPLETED],
        ("--store", sqlite_orders),
    )
    said = perdure_command("runs", "fork", run, TARGET, "root.99", *at)
    assert (said.code, "root.99" in said.err) == (REFUSED, True)
    said = perdure_command("runs", "fork", run, TARGET, "root.0", "--set", "root.0", *at)
    assert (said.code, "write --set STEP=JSON" in said.err) == (REFUSED, True)
