"""Commands that start runs, send them something, wait for them, and say why they do not move."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from perdure import Engine
from perdure.cli.exit_codes import FAILED, INTERRUPTED, REFUSED
from perdure.store.opening import open_store
from tests.cli import orders
from tests.cli.conftest import Command
from tests.cli.test_demo import COMMAND
from tests.client.engines import assert_cancelled, until_store

PROGRAM = "tests.cli.orders:checkout"
DEADLINE_S = 60


@contextmanager
def worker(url: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A host process of the orders' program."""
    code = (
        "import asyncio, sys\n"
        "from perdure import Engine\n"
        "from tests.cli import orders\n"
        "async def main():\n"
        "    async with Engine(sys.argv[1]):\n"
        "        print('open', flush=True)\n"
        "        await asyncio.sleep(600)\n"
        "asyncio.run(main())\n"
    )
    log = (folder / "worker.log").open("wb")
    process = subprocess.Popen(
        [sys.executable, "-c", code, url], stdout=subprocess.PIPE, stderr=log
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"open\n", (folder / "worker.log").read_text()
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        log.close()


def test_run_is_started_explained_signalled_and_its_result_printed(
    perdure_command: Command, orders_url: str, tmp_path: Path
) -> None:
    at = ("--store", orders_url)
    with worker(orders_url, tmp_path):
        started = perdure_command("runs", "start", PROGRAM, '{"order": "Z"}', "--key", "z", *at)
        run = started.out.strip()
        again = perdure_command("runs", "start", PROGRAM, '["Z"]', "--key", "z", *at)
        assert (again.out.strip(), "was started before" in again.err) == (run, True)
        waits = "waits for signal 'approval' at root.2"
        until_explained(perdure_command, run, waits, *at)
        said = perdure_command("runs", "result", run, "--timeout", 0.1, *at)
        assert (said.code, waits in said.err) == (FAILED, True)
        assert (
            perdure_command("runs", "signal", run, "approval", "true", "--id", "1", *at).code == 0
        )
        assert (
            perdure_command("runs", "signal", run, "approval", "true", "--id", "1", *at).code == 0
        )
        said = perdure_command("runs", "result", run, *at)
        assert (said.code, said.out, said.err) == (0, '"receipt for Z"\n', "")
        hosts = json.loads(perdure_command("hosts", "-o", "json", *at).out)
        assert [host["is_alive"] for host in hosts] == [True]


def test_run_that_needs_approval_begins_once_it_has_it(
    perdure_command: Command, orders_url: str, tmp_path: Path
) -> None:
    at = ("--store", orders_url)
    terms = ("--approval", "--priority", 3, "--tag", "customer=acme", "--scope", "eu")
    run = perdure_command("runs", "start", PROGRAM, '{"order": "Y"}', *terms, *at).out.strip()
    (listed,) = json.loads(
        perdure_command("runs", "list", "--where", "tag.customer=acme", "-o", "json", *at).out
    )
    assert (listed["run_id"], listed["status"], listed["scope"]) == (run, "pending", "eu")
    until_explained(perdure_command, run, "approval", *at)
    with worker(orders_url, tmp_path):
        assert perdure_command("runs", "approve", run, "--reason", "paid", *at).code == 0
        until_explained(perdure_command, run, "waits for signal 'approval'", *at)


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        (("--debounce", 5), "pass the key that its starts share"),
        (("--max-wait", 5), "pass debounce"),
        (("--delay", -1), "delay"),
        (("--tag", "acme"), "write --tag NAME=VALUE"),
    ],
)
def test_terms_of_a_start_are_checked(
    perdure_command: Command, orders_url: str, terms: tuple[Any, ...], said: str
) -> None:
    started = perdure_command(
        "runs", "start", PROGRAM, '{"order": "Y"}', *terms, "--store", orders_url
    )
    assert (started.code, started.out) == (REFUSED, "")
    assert said in started.err


def test_request_is_sent_and_its_reply_printed(
    perdure_command: Command, orders_url: str, tmp_path: Path
) -> None:
    at = ("--store", orders_url)
    with worker(orders_url, tmp_path):
        run = perdure_command("runs", "start", "tests.cli.orders:quote", *at).out.strip()
        until_explained(perdure_command, run, "asks sales: 'What does it cost?'", *at)
        for _ in range(2):
            said = perdure_command(
                "runs", "ask", run, "orders.price", '"horse"', "--id", "1", "--timeout", 60, *at
            )
            assert (said.code, said.out) == (0, "5\n")
        said = perdure_command("runs", "ask", run, "orders.price", '"unicorn"', *at)
        assert (said.code, "out of stock" in said.err) == (FAILED, True)
        assert perdure_command("runs", "ask", run, "orders.price", '""', *at).out == "0\n"
        assert perdure_command("runs", "result", run, *at).out == '"closed"\n'


def until_explained(command: Command, run: str, text: str, *at: str) -> str:
    deadline = time.monotonic() + DEADLINE_S
    while text not in (said := command("explain", run, *at)).out:
        assert time.monotonic() < deadline, said
    return said.out


def test_killed_host_is_explained_and_listed_as_dead(
    perdure_command: Command, orders_url: str, tmp_path: Path
) -> None:
    at = ("--store", orders_url)
    run = asyncio.run(orders.run_ids(orders_url))[orders.WAITING]
    with worker(orders_url, tmp_path) as process:
        until_owned(orders_url, run)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        said = perdure_command("explain", run, *at)
        assert "belongs to host h_" in said.out
        assert "which is dead" in said.out
        assert "to move it: perdure worker MODULE:ENGINE" in said.out
        listed = perdure_command("hosts", *at)
        assert "dead" in listed.out
        ids = perdure_command("hosts", "-o", "ids", *at).out.split()
        assert len(ids) == 1
        assert ids[0] in said.out


def until_owned(url: str, run: str) -> None:
    async def look() -> None:
        async with Engine(url, hosts=False) as engine, asyncio.timeout(DEADLINE_S):
            while (await engine.handle(run).describe()).owner is None:  # noqa: ASYNC110 - polls the store
                await asyncio.sleep(0.02)

    asyncio.run(look())


def test_outcome_of_each_run_is_its_exit_code(perdure_command: Command, orders_url: str) -> None:
    runs, at = asyncio.run(orders.run_ids(orders_url)), ("--store", orders_url)
    said = perdure_command("runs", "result", runs[orders.COMPLETED], *at)
    assert (said.code, said.out) == (0, '"receipt for A"\n')
    said = perdure_command("runs", "result", runs[orders.FAILED], *at)
    assert (said.code, said.out) == (FAILED, "")
    assert "the run failed: ValueError: no receipt for B" in said.err


def test_cancel_with_a_reason_is_carried_out_by_a_host(
    perdure_command: Command, orders_url: str
) -> None:
    run, at = asyncio.run(orders.run_ids(orders_url))[orders.WAITING], ("--store", orders_url)
    assert (
        perdure_command("runs", "cancel", run, "--reason", "sold out", "--wait", 0.1, *at).code == 0
    )

    async def host() -> None:
        async with Engine(orders_url) as engine:
            await assert_cancelled(engine.handle(run))

    asyncio.run(host())
    said = perdure_command("runs", "result", run, *at)
    assert (said.code, "the run was cancelled: sold out" in said.err) == (FAILED, True)


def test_signal_to_a_topic_and_key_is_kept_for_a_hook(
    perdure_command: Command, sqlite_orders: str
) -> None:
    said = perdure_command("send", "gate", "k-1", '{"a": 1}', "--store", sqlite_orders)
    assert (said.code, said.err) == (0, "")

    async def kept() -> list[object]:
        store = await open_store(sqlite_orders)
        try:
            from tests.store.builders import raw  # noqa: PLC0415 - used here alone

            return await raw(store, "SELECT kind FROM {}message WHERE state = 'pending'")  # type: ignore[return-value]
        finally:
            await store.close()

    assert asyncio.run(kept()) == [("signal:gate",)]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["runs", "signal", "r_1", "approval", "yes"], "'yes' is not JSON"),
        (["runs", "signal", "nonsense", "approval", "1"], "nonsense"),
        (["runs", "result", f"r_{'0' * 32}"], "there is no run"),
        (["explain", f"r_{'0' * 32}"], "there is no run"),
        (["runs", "start", "tests.cli.orders:charge"], "pass tests.cli.orders:checkout or"),
        (["runs", "start", "tests.cli.orders"], "is not the name of a workflow"),
        (["runs", "start", PROGRAM, "7"], "pass an object of arguments by name"),
        (["runs", "start", PROGRAM, '{"ordre": "A"}'], "ordre"),
        (["runs", "start", PROGRAM, '{"order": 7}'], "order"),
    ],
)
def test_mistake_is_refused_without_a_traceback(
    perdure_command: Command, sqlite_orders: str, arguments: list[str], said: str
) -> None:
    found = perdure_command(*arguments, "--store", sqlite_orders)
    assert found.code == REFUSED
    assert said in found.err
    assert "Traceback" not in found.err


def test_run_in_this_process_prints_the_result(perdure_command: Command) -> None:
    said = perdure_command("run", "tests.cli.orders:refuse", '["X"]')
    assert (said.code, "the run failed: ValueError: no receipt for X" in said.err) == (FAILED, True)


def test_interrupt_is_quiet_and_the_run_resumes_under_its_key(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/run.db"
    arguments = ["run", PROGRAM, '["Y"]', "--key", "y", "--store", url]
    process = subprocess.Popen(
        [*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    until_waiting_for_signal(url)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, out, err) == (INTERRUPTED, "", "")


def until_waiting_for_signal(url: str) -> None:
    async def look() -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not Path(url.removeprefix("sqlite:///")).exists():  # noqa: ASYNC110, ASYNC240 - another process
                await asyncio.sleep(0.02)
            async with Engine(url, hosts=False) as engine:
                while True:
                    run = await engine.find(orders.checkout, "y")
                    if run is not None and (await run.waits()).signals:
                        return
                    await asyncio.sleep(0.02)

    asyncio.run(look())


def test_project_that_init_makes_runs_its_own_test(
    perdure_command: Command, tmp_path: Path
) -> None:
    folder = tmp_path / "project"
    said = perdure_command("init", folder)
    assert (said.code, "perdure worker app:engine" in said.out) == (0, True)
    done = subprocess.run(
        [sys.executable, "-c", "from test_app import *; test_approved_order_is_shipped()"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = perdure_command("init", folder)
    assert (said.code, "exists: pass a new folder" in said.err) == (REFUSED, True)


def test_queues_are_listed_with_their_tasks_and_since_when_one_is_due(
    perdure_command: Command, orders_url: str
) -> None:
    async def queue() -> None:
        async with Engine(orders_url) as engine:
            run = await engine.start(orders.pack_later("A"))

            async def is_queued() -> bool:
                return bool((await run.waits()).tasks)

            await until_store(is_queued)

    asyncio.run(queue())
    said = perdure_command("queues", "--store", orders_url)
    assert (said.code, said.err) == (0, "")
    head, line = said.out.splitlines()
    assert head.split() == ["QUEUE", "DUE", "LATER", "CLAIMED", "DUE", "SINCE", "HOSTS"]
    assert line.split()[:4] == ["orders.packing", "1", "0", "0"]
    since = json.loads(perdure_command("queues", "-o", "json", "--store", orders_url).out)
    assert 0 <= time.time() * 1000 - since[0]["oldest_ms"] < DEADLINE_S * 1000
