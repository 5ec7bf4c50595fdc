"""`perdure runs list --watch` and `perdure runs history --follow`: what changes is printed while it happens."""

import asyncio
import json
import os
import pty
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from perdure import Engine
from perdure.cli.exit_codes import INTERRUPTED, REFUSED
from perdure.cli.runs import following
from tests.cli import orders
from tests.cli.conftest import Command
from tests.cli.test_demo import COMMAND

DEADLINE_S = 30


@contextmanager
def watching(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The command in a process of its own; at the end of the block, Ctrl-C must end it quietly."""
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=DEADLINE_S)
        assert (process.returncode, errors) == (INTERRUPTED, "")
    finally:
        process.kill()
        process.communicate()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def test_watched_list_prints_each_new_run_and_each_new_status(orders_url: str) -> None:
    ids = asyncio.run(orders.run_ids(orders_url))

    async def end() -> None:
        async with Engine(orders_url) as engine:
            run = engine.handle(ids[orders.WAITING])
            await run.signal(orders.approval, True)
            await run.result(60)

    with watching("runs", "list", "--watch", "-o", "jsonl", "--store", orders_url) as process:
        first = [json.loads(line(process)) for _ in ids]
        assert {run["run_id"] for run in first} == set(ids.values())
        asyncio.run(end())
        statuses = {"blocked"}
        while "completed" not in statuses:
            changed = json.loads(line(process))
            assert changed["run_id"] == ids[orders.WAITING]
            statuses.add(changed["status"])


def test_watched_list_of_ids_prints_each_run_once(sqlite_orders: str) -> None:
    ids = set(asyncio.run(orders.run_ids(sqlite_orders)).values())

    async def start() -> str:
        async with Engine(sqlite_orders) as engine:
            run = await engine.start(orders.many(0))
            await run.result(60)
            return run.run_id

    with watching("runs", "list", "--watch", "-o", "ids", "--store", sqlite_orders) as process:
        assert {line(process).strip() for _ in ids} == ids
        started = asyncio.run(start())
        assert line(process).strip() == started


def test_watched_list_in_a_terminal_is_a_table_until_interrupted(sqlite_orders: str) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "runs", "list", "--watch", "--store", sqlite_orders],
        stdin=theirs,
        stdout=theirs,
        stderr=subprocess.PIPE,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "20"},
    )
    os.close(theirs)
    try:
        shown = b""
        while b"orders.refuse" not in shown or b"orders.checkout" not in shown:
            shown += os.read(ours, 4096)
        assert b"PROGRAM" in shown
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        assert (process.wait(DEADLINE_S), process.stderr.read()) == (INTERRUPTED, b"")
    finally:
        process.kill()
        process.communicate()
        os.close(ours)


def test_followed_history_prints_all_entries_and_ends_with_the_run(
    perdure_command: Command, orders_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "ENTRIES_PER_READ", 2)
    run = asyncio.run(orders.run_ids(orders_url))[orders.WAITING]
    at = ("runs", "history", run, "-o", "jsonl", "--store", orders_url)

    async def follow_and_end() -> str:
        async with Engine(orders_url) as engine:
            follow = asyncio.create_task(asyncio.to_thread(perdure_command, *at, "--follow"))
            await engine.handle(run).signal(orders.approval, True)
            await engine.handle(run).result(60)
            return (await follow).out

    followed = asyncio.run(follow_and_end())
    assert followed == perdure_command(*at).out
    assert json.loads(followed.splitlines()[-1])["event"] == "ExecutionCompleted"


def test_followed_table_has_a_line_with_postings_for_each_entry(
    perdure_command: Command, sqlite_orders: str
) -> None:
    run = asyncio.run(orders.run_ids(sqlite_orders))[orders.COMPLETED]
    said = perdure_command("runs", "history", run, "--follow", "--store", sqlite_orders)
    scheduled = next(row for row in said.out.splitlines() if "InvokeScheduled" in row)
    assert scheduled.endswith("step:root.0 +1100000000000; semaphore +1")


@pytest.mark.parametrize(
    "arguments",
    [
        ["list", "--watch", "-o", "json"],
        ["list", "--watch", "--limit", "0"],
        ["list", "--watch", "--limit", "1001"],
        ["history", f"r_{'0' * 32}", "--follow", "-o", "json"],
        ["history", f"r_{'0' * 32}", "--follow"],
    ],
)
def test_what_has_no_end_or_no_run_is_refused(
    perdure_command: Command, sqlite_orders: str, arguments: list[str]
) -> None:
    said = perdure_command("runs", *arguments, "--store", sqlite_orders)
    assert (said.code, said.out) == (REFUSED, "")
