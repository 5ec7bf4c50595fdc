"""`perdure audit`, `verify` and `backup`."""

import asyncio
import json
import re
from pathlib import Path

import pytest

from perdure import Engine
from perdure.cli.exit_codes import FAILED, REFUSED
from perdure.store.opening import open_store
from tests.cli import orders
from tests.cli.conftest import Command
from tests.store.builders import raw


@pytest.mark.parametrize("command", ["audit", "verify"])
def test_sound_store_is_clean(perdure_command: Command, orders_url: str, command: str) -> None:
    said = perdure_command(command, "--store", orders_url)
    assert (said.code, said.err) == (0, "")
    assert re.search(r": clean \(runs 3, entries \d+, accounts \d+\)\n$", said.out)
    shown = json.loads(perdure_command(command, "--store", orders_url, "-o", "json").out)
    assert (shown["clean"], shown["runs"], shown["findings"]) == (True, 3, [])


def test_only_the_named_run_is_inspected(perdure_command: Command, orders_url: str) -> None:
    run_id = asyncio.run(orders.run_ids(orders_url))[orders.WAITING]
    for command in ("audit", "verify"):
        said = perdure_command(command, "--run", run_id, "--store", orders_url)
        assert (said.code, "(runs 1," in said.out) == (0, True)
    missing = f"{run_id[:-4]}ffff"
    said = perdure_command("audit", "--run", missing, "--store", orders_url)
    assert said.code == REFUSED
    assert f"there is no run {missing!r}" in said.err


def test_changed_balance_is_a_finding_of_the_audit(
    perdure_command: Command, orders_url: str
) -> None:
    asyncio.run(_change(orders_url, "UPDATE {}ledger SET balance = balance + 1"))
    said = perdure_command("audit", "--store", orders_url)
    assert said.code == FAILED
    assert "balance_differs" in said.out
    shown = json.loads(perdure_command("audit", "--store", orders_url, "-o", "json").out)
    assert not shown["clean"]
    assert "balance_differs" in {finding["name"] for finding in shown["findings"]}


def test_heads_show_that_an_older_copy_is_in_place(
    perdure_command: Command, sqlite_orders: str, tmp_path: Path
) -> None:
    old, heads = tmp_path / "old.db", tmp_path / "heads.json"
    assert perdure_command("backup", old, "--store", sqlite_orders).code == 0
    asyncio.run(_complete(sqlite_orders))
    said = perdure_command("verify", "--heads", heads, "--store", sqlite_orders)
    assert (said.code, f"wrote 3 heads to {heads}" in said.out) == (0, True)
    kept = heads.read_text()
    said = perdure_command("verify", "--heads", heads, "--store", f"sqlite:///{old}")
    assert (said.code, "journal_shortened" in said.out) == (FAILED, True)
    assert heads.read_text() == kept


def test_heads_are_compared_and_renewed(
    perdure_command: Command, orders_url: str, tmp_path: Path
) -> None:
    heads = tmp_path / "heads.json"
    perdure_command("verify", "--heads", heads, "--store", orders_url)
    before = json.loads(heads.read_text())
    asyncio.run(_complete(orders_url))
    said = perdure_command("verify", "--heads", heads, "--store", orders_url)
    assert (said.code, "compared with 3 heads" in said.out) == (0, True)
    after = json.loads(heads.read_text())
    assert before.keys() == after.keys()
    assert sum(before[run] != after[run] for run in after) == 1


@pytest.mark.parametrize("text", ["[", "[]", '{"r_1": "x"}'])
def test_file_without_heads_is_refused(
    perdure_command: Command, sqlite_orders: str, tmp_path: Path, text: str
) -> None:
    heads = tmp_path / "heads.json"
    heads.write_text(text)
    said = perdure_command("verify", "--heads", heads, "--store", sqlite_orders)
    assert said.code == REFUSED
    assert heads.read_text() == text


def test_backup_of_a_live_store_is_complete_and_runs_resume_in_it(
    perdure_command: Command, sqlite_orders: str, tmp_path: Path
) -> None:
    copy = tmp_path / "copy.db"

    async def copy_while_open() -> None:
        async with Engine(sqlite_orders) as engine:
            assert (await engine.audit()).is_clean
            said = await asyncio.to_thread(
                perdure_command, "backup", copy, "--store", sqlite_orders
            )
            assert (said.code, "complete and verified (runs 3" in said.out) == (0, True)

    asyncio.run(copy_while_open())
    asyncio.run(_complete(f"sqlite:///{copy}"))
    assert [path.name for path in tmp_path.iterdir() if "partial" in path.name] == []


def test_backup_does_not_replace_a_file(
    perdure_command: Command, sqlite_orders: str, tmp_path: Path
) -> None:
    copy = tmp_path / "copy.db"
    copy.write_text("mine")
    said = perdure_command("backup", copy, "--store", sqlite_orders)
    assert (said.code, "exists: pass the path of a new file" in said.err) == (REFUSED, True)
    assert copy.read_text() == "mine"


def test_backup_of_a_damaged_store_leaves_no_file(
    perdure_command: Command, sqlite_orders: str, tmp_path: Path
) -> None:
    asyncio.run(_change(sqlite_orders, "UPDATE {}ledger SET balance = balance + 1"))
    said = perdure_command("backup", tmp_path / "copy.db", "--store", sqlite_orders)
    assert (said.code, "the copy is not sound" in said.err) == (REFUSED, True)
    assert not list(tmp_path.glob("copy*"))


@pytest.mark.postgres
def test_backup_of_postgres_names_pg_dump(
    perdure_command: Command, fresh_postgres: str, tmp_path: Path
) -> None:
    said = perdure_command("backup", tmp_path / "copy.db", "--store", fresh_postgres)
    assert (said.code, "use pg_dump" in said.err) == (REFUSED, True)


def test_doctor_reports_versions_and_the_store(perdure_command: Command, orders_url: str) -> None:
    said = perdure_command("doctor", "--store", orders_url)
    assert said.code == 0
    for check in ("Python", "compiled commits", "open files", "fsync", "runs  +3, 1 open"):
        assert re.search(check, said.out)
    assert "3, 1 open" in said.out


def test_doctor_fails_for_a_store_that_is_not_there(
    perdure_command: Command, tmp_path: Path
) -> None:
    said = perdure_command("doctor", "--store", f"sqlite:///{tmp_path}/nowhere.db")
    assert (said.code, "holds no store" in said.out) == (FAILED, True)
    assert not list(tmp_path.iterdir())


async def _complete(url: str) -> None:
    """Let the waiting run end."""
    async with Engine(url) as engine:
        run = await engine.find(orders.checkout, orders.WAITING)
        assert run is not None
        await run.signal(orders.approval, True)
        await run.result(60)


async def _change(url: str, sql: str) -> None:
    store = await open_store(url)
    try:
        await raw(store, sql)
    finally:
        await store.close()
