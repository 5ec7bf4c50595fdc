"""`perdure runs show`, `watch`, `history` and `ledger`: a run as people and programs see it."""

import asyncio
import json
import re
from pathlib import Path

import pytest

from perdure import Engine
from perdure.cli.exit_codes import REFUSED
from tests.cli import orders
from tests.cli.conftest import Command


def test_shown_run_has_its_state_explanation_and_steps(
    perdure_command: Command, orders_url: str
) -> None:
    run = asyncio.run(orders.run_ids(orders_url))[orders.COMPLETED]
    said = perdure_command("runs", "show", run, "--store", orders_url)
    assert (said.code, said.err) == (0, "")
    head, facts, _, summary, _, titles, charge, timer, signal = said.out.splitlines()
    assert head == f"{run}  orders.checkout  completed"
    assert re.fullmatch(r"created \S+ ago, took \S+, key completed", facts)
    assert "is over: it completed after" in summary
    assert titles.split() == ["STEP", "WHAT", "OUTCOME", "TIME", "INPUT", "VALUE"]
    assert charge.split()[:3] == ["root.0", "orders.charge", "ok"]
    assert '{"order":"A"}' in charge
    assert "█" in charge
    assert '"receipt for A"' in charge
    assert timer.split()[:3] == ["root.1", "timer", "ok"]
    assert signal.split()[:4] == ["root.2", "signal", "approval", "ok"]


def test_json_of_a_run_has_its_explanation_and_steps(
    perdure_command: Command, orders_url: str
) -> None:
    run = asyncio.run(orders.run_ids(orders_url))[orders.WAITING]
    shown = json.loads(
        perdure_command("runs", "show", run, "--store", orders_url, "-o", "json").out
    )
    assert (shown["run_id"], shown["key"]) == (run, orders.WAITING)
    assert "signal" in {cause["kind"] for cause in shown["explanation"]["causes"]}
    assert [step["outcome"] for step in shown["steps"]] == ["ok", "ok", "open"]


def test_watch_in_a_pipe_ends_with_the_run(perdure_command: Command, orders_url: str) -> None:
    run = asyncio.run(orders.run_ids(orders_url))[orders.FAILED]
    said = perdure_command("runs", "watch", run, "--store", orders_url)
    assert said.code == 0
    assert "is over: it failed after" in said.out


def test_watch_follows_a_run_to_its_end(perdure_command: Command, orders_url: str) -> None:
    async def watch_and_end() -> str:
        async with Engine(orders_url) as engine:
            run = await engine.find(orders.checkout, orders.WAITING)
            assert run is not None
            watching = asyncio.create_task(
                asyncio.to_thread(
                    perdure_command, "runs", "watch", run.run_id, "--store", orders_url
                )
            )
            await run.signal(orders.approval, True)
            await run.result(60)
            return (await watching).out

    assert "it completed after" in asyncio.run(watch_and_end()).splitlines()[-1]


def test_history_has_the_postings_beside_each_entry(
    perdure_command: Command, orders_url: str
) -> None:
    run = asyncio.run(orders.run_ids(orders_url))[orders.COMPLETED]
    said = perdure_command("runs", "history", run, "--store", orders_url)
    assert "receipt for A" not in said.out
    scheduled = next(line for line in said.out.splitlines() if "InvokeScheduled" in line)
    assert scheduled.rstrip().endswith("step:root.0 +1100000000000; semaphore +1")
    assert (
        "receipt for A"
        in perdure_command("runs", "history", run, "--reveal", "--store", orders_url).out
    )
    lines = perdure_command("runs", "history", run, "-o", "jsonl", "--store", orders_url).out
    entries = [json.loads(line) for line in lines.splitlines()]
    assert [entry["seq"] for entry in entries] == list(range(len(entries)))
    assert sum(entry["semaphore"] for entry in entries) == 0


def test_postings_of_the_history_sum_up_to_the_ledger(
    perdure_command: Command, orders_url: str
) -> None:
    run, at = asyncio.run(orders.run_ids(orders_url))[orders.FAILED], ("--store", orders_url)
    entries = json.loads(perdure_command("runs", "history", run, "-o", "json", *at).out)
    sums: dict[str, int] = {}
    for entry in entries:
        for account, increment in entry["postings"].items():
            sums[account] = sums.get(account, 0) + int(increment)
    accounts = json.loads(perdure_command("runs", "ledger", run, "-o", "json", *at).out)
    assert {account["account"]: account["balance"] for account in accounts} == sums
    said = perdure_command("runs", "ledger", run, *at)
    assert "001100000000001  active · attempt 1 · leg 1 done · 1 entry" in said.out


@pytest.mark.parametrize("command", ["show", "history", "ledger", "export", "watch"])
def test_run_that_is_not_there_is_refused(
    perdure_command: Command, sqlite_orders: str, command: str
) -> None:
    said = perdure_command("runs", command, f"r_{'0' * 32}", "--store", sqlite_orders)
    assert (said.code, said.out, "there is no run" in said.err) == (REFUSED, "", True)


def test_stored_text_can_not_control_the_terminal(perdure_command: Command, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/orders.db"

    async def start() -> str:
        async with Engine(url) as engine:
            run = await engine.start(orders.refuse("\x1b[2Jgone"), key="\x1b]0;title\x07")
            with pytest.raises(ValueError, match="gone"):
                await run.result(60)
            return run.run_id

    run = asyncio.run(start())
    for command in (["runs", "show", run], ["explain", run], ["runs", "history", run, "--reveal"]):
        said = perdure_command(*command, "--store", url)
        assert "\x1b" not in said.out
        assert "\x07" not in said.out


def test_last_steps_are_shown_and_with_all_every_one(
    perdure_command: Command, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/many.db"

    async def start() -> str:
        async with Engine(url) as engine:
            run = await engine.start(orders.many(60))
            assert await run.result(60) == 60
            return run.run_id

    run = asyncio.run(start())
    said = perdure_command("runs", "show", run, "--store", url)
    assert "there are earlier steps: --all shows them" in said.out
    assert "root.9 " not in said.out
    assert "root.9 " in perdure_command("runs", "show", run, "--all", "--store", url).out
