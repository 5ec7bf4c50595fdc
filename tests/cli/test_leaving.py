"""`perdure runs archive`, `erase` and `purge`, `perdure retention` and `perdure store compact`."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from perdure import Engine
from perdure.cli.exit_codes import FAILED, REFUSED
from tests.cli.conftest import Command

APP = """
import perdure

engine = perdure.Engine(
    {url!r},
    archive="archive",
    retention=[perdure.Retention(status="failed", keep=0, then="purge"),
               perdure.Retention(program="orders.checkout", after=3600, keep=10, then="archive")],
)
"""


def ids(command: Command, url: str, **filters: str) -> list[str]:
    given = [part for name, value in filters.items() for part in (f"--{name}", value)]
    return command("runs", "list", "-o", "ids", *given, "--store", url).out.split()


def assert_verified(command: Command, url: str) -> None:
    assert command("verify", "--store", url).code == 0
    assert command("audit", "--store", url).code == 0


def test_an_archived_run_is_in_a_file_that_replay_and_erase_understand(
    perdure_command: Command, orders_url: str, tmp_path: Path
) -> None:
    at = ("--store", orders_url, "--archive", str(tmp_path / "archive"))
    (run,) = ids(perdure_command, orders_url, status="completed")
    said = perdure_command("runs", "archive", run, *at)
    assert (said.code, "archived" in said.out) == (0, True)
    (file,) = [each for each in (tmp_path / "archive").rglob("*") if each.is_file()]
    said = perdure_command("replay", file, "tests.cli.orders:engine")
    assert said.code == 0, said.err
    assert "receipt for A" in said.out
    said = perdure_command("runs", "show", run, "--store", orders_url)
    assert said.code == REFUSED
    assert "is in the archive" in said.err
    said = perdure_command("runs", "erase", run, "--reason", "asked", *at)
    assert (said.code, "receipts" in said.out) == (0, True)
    (file,) = [each for each in (tmp_path / "archive").rglob("*") if each.is_file()]
    assert_verified(perdure_command, orders_url)


def test_runs_that_match_are_erased_and_open_ones_are_refused(
    perdure_command: Command, orders_url: str
) -> None:
    at = ("--store", orders_url)
    said = perdure_command("runs", "erase", "--where", "program=orders.checkout", *at)
    assert said.code == REFUSED
    assert "2 runs match" in said.err
    said = perdure_command("runs", "erase", "--where", "program=orders.checkout", "--dry-run", *at)
    assert len(said.out.split()) == 2
    said = perdure_command(
        "runs", "erase", "--where", "program=orders.checkout", "--yes", "-o", "json", *at
    )
    assert said.code == FAILED
    assert sorted(each["outcome"] for each in json.loads(said.out)) == ["erased", "refused"]
    (run,) = ids(perdure_command, orders_url, status="completed")
    for command in (("show",), ("history",), ("ledger",)):
        assert perdure_command("runs", *command, run, *at).code == 0
    assert perdure_command("explain", run, *at).code == 0
    assert_verified(perdure_command, orders_url)


def test_purged_runs_are_gone_and_kept_heads_still_verify(
    perdure_command: Command, orders_url: str, tmp_path: Path
) -> None:
    at = ("--store", orders_url)
    heads = ("--heads", str(tmp_path / "heads.json"))
    assert perdure_command("verify", *heads, *at).code == 0
    said = perdure_command("runs", "purge", "--where", "created<1d", "--yes", *at)
    assert said.code == FAILED
    assert "purged 2" in said.out
    assert "stays 1" in said.out
    assert len(ids(perdure_command, orders_url)) == 1
    said = perdure_command("verify", *heads, *at)
    assert said.code == 0, said.out
    said = perdure_command("runs", "purge", "r_x", *at)
    assert said.code == REFUSED


def test_policies_of_an_engine_are_listed_and_applied(
    perdure_command: Command,
    orders_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    name = f"policies_{orders_url.partition(':')[0]}"
    (tmp_path / f"{name}.py").write_text(APP.format(url=orders_url))
    said = perdure_command("retention", "list", f"{name}:engine", "-o", "json")
    assert [(row["then"], row["due"], row["done"]) for row in json.loads(said.out)] == [
        ("purge", 1, 0),
        ("archive", 0, 0),
    ]
    said = perdure_command("retention", "run", f"{name}:engine")
    assert said.code == 0
    assert "orders.checkout" in said.out
    assert not ids(perdure_command, orders_url, status="failed")
    assert_verified(perdure_command, orders_url)


def test_a_store_is_compacted_and_a_large_one_only_without_hosts(
    perdure_command: Command, orders_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = ("--store", orders_url)
    assert (
        perdure_command(
            "runs", "purge", *ids(perdure_command, orders_url, status="failed"), *at
        ).code
        == 0
    )
    assert perdure_command("store", "compact", *at).code == 0
    assert perdure_command("store", "compact", "--quick", *at).code == 0
    monkeypatch.setattr("perdure.cli.retention.compacting.SCRUBBED_BYTES", 0)

    async def beside() -> None:
        async with Engine(orders_url):
            said = await asyncio.to_thread(perdure_command, "store", "compact", *at)
            assert said.code == REFUSED
            assert "1 hosts are on the store" in said.err
            said = await asyncio.to_thread(perdure_command, "store", "compact", "--yes", *at)
            assert said.code == 0

    asyncio.run(beside())
    assert_verified(perdure_command, orders_url)
