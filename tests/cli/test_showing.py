"""`perdure runs show`, `watch`, `history` and `ledger`: a run as people and programs see it."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import perdure
from perdure import Engine, task, workflow
from perdure.cli.exit_codes import REFUSED
from perdure.client.runs import explaining, overview
from perdure.client.runs.overview import RunOverview
from perdure.core.journal.entry import Entry
from tests.cli import orders
from tests.cli.conftest import Command
from tests.client.engines import store_of, until_store


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
    assert titles.split() == ["STEP", "WHAT", "STATE", "TIME", "INPUT", "VALUE"]
    assert charge.split()[:3] == ["root.0", "orders.charge", "ok"]
    assert '{"order":"A"}' in charge
    assert "█" in charge
    assert '"receipt for A"' in charge
    assert timer.split()[:3] == ["root.1", "timer", "ok"]
    assert signal.split()[:4] == ["root.2", "signal", "approval", "ok"]


@task(name="shown.pack", on_failure="park")
async def pack() -> None:
    raise RuntimeError("no boxes")


@task(name="shown.label", queue="shown-printer")
async def label() -> None:
    """No engine of these tests serves the queue."""


@workflow(name="shown.order")
async def order() -> None:
    await perdure.gather(pack(), label(), perdure.sleep(3600))


def test_open_steps_say_what_they_do_and_the_header_names_tags_and_owner(
    perdure_command: Command, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/shown.db"

    async def start() -> str:
        async with Engine(url) as engine:
            run = await engine.start(order(), tags={"customer": "acme"})

            async def is_parked() -> bool:
                return bool((await run.waits()).parked)

            await until_store(is_parked)
            for report in (await engine.audit(), await engine.verify()):
                assert report.is_clean, str(report)
            return run.run_id

    run = asyncio.run(start())
    lines = perdure_command("runs", "show", run, "--store", url).out.splitlines()
    assert lines[1].endswith(", customer=acme, owner none")
    assert [line.split()[1:3] for line in lines[-3:]] == [
        ["shown.pack", "parked"],
        ["shown.label", "queued"],
        ["timer", "waiting"],
    ]
    shown = json.loads(perdure_command("runs", "show", run, "--store", url, "-o", "json").out)
    assert [step["state"] for step in shown["steps"]] == ["parked", "queued", "waiting"]
    assert shown["tags"] == {"customer": "acme"}


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


class Many(NamedTuple):
    """A completed run of 60 steps."""

    url: str
    run: str


@pytest.fixture
def sqlite_many(tmp_path: Path) -> Many:
    url = f"sqlite:///{tmp_path}/many.db"

    async def start() -> str:
        async with Engine(url) as engine:
            run = await engine.start(orders.many(60))
            assert await run.result(60) == 60
            return run.run_id

    return Many(url, asyncio.run(start()))


def test_last_steps_are_shown_and_with_all_every_one(
    perdure_command: Command, sqlite_many: Many
) -> None:
    at = (sqlite_many.run, "--store", sqlite_many.url)
    assert "root.9 " not in perdure_command("runs", "show", *at).out
    assert "root.9 " in perdure_command("runs", "show", "--all", *at).out


def test_steps_that_are_not_shown_are_counted(perdure_command: Command, sqlite_many: Many) -> None:
    at = (sqlite_many.run, "--store", sqlite_many.url)
    said = perdure_command("runs", "show", *at)
    assert said.out.splitlines()[-1] == (
        "10 earlier tasks, timers and child runs: --all shows every step"
    )
    shown = json.loads(perdure_command("runs", "show", *at, "-o", "json").out)
    assert (shown["is_cut"], shown["earlier"], len(shown["steps"])) == (True, 10, 50)
    shown = json.loads(perdure_command("runs", "show", *at, "--all", "-o", "json").out)
    assert (shown["is_cut"], shown["earlier"], len(shown["steps"])) == (False, 0, 60)


def test_show_of_a_closed_run_reads_the_end_of_its_journal(
    sqlite_many: Many, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "ENTRIES_OF_LAST_STEPS", 20)
    monkeypatch.setattr(explaining, "LAST_ENTRIES", 20)

    async def read() -> tuple[RunOverview, int]:
        async with Engine(sqlite_many.url, hosts=False) as engine:
            store, count = store_of(engine), 0
            entries = store.entries

            async def counted(*where: Any) -> list[Entry]:
                nonlocal count
                found: list[Entry] = await entries(*where)
                count += len(found)
                return found

            monkeypatch.setattr(store, "entries", counted)
            monkeypatch.setattr(store, "load", None)
            return await overview.overview_of(engine.handle(sqlite_many.run), 50), count

    found, count = asyncio.run(read())
    assert count <= 2 * 20
    assert (found.is_cut, found.earlier + len(found.steps)) == (True, 60)
    assert found.description.status == "completed"
