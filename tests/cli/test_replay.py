"""`perdure replay` and `perdure runs export`: a recorded run on the registered code, under a debugger if wanted."""

import asyncio
import io
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from perdure import Engine, load_graph, workflow
from perdure.authoring import registry
from perdure.cli.exit_codes import FAILED, REFUSED
from perdure.cli.replay.command import StopAt, replay_run
from perdure.cli.replay.debugger import StepDebugger
from perdure.core.ids import StepId
from perdure.store.opening import open_store
from tests.cli import orders
from tests.cli.conftest import Command
from tests.cli.test_demo import COMMAND
from tests.store.builders import contents

TARGET = "tests.cli.orders:engine"


def ids(url: str) -> dict[str, Any]:
    return asyncio.run(orders.run_ids(url))


async def rows(url: str) -> object:
    store = await open_store(url)
    try:
        return await contents(store)
    finally:
        await store.close()


def test_each_step_is_printed_with_its_line_and_value(
    perdure_command: Command, orders_url: str
) -> None:
    run = ids(orders_url)[orders.COMPLETED]
    before = asyncio.run(rows(orders_url))
    said = perdure_command("replay", run, TARGET, "--store", orders_url)
    assert (said.code, said.err) == (0, "")
    charge, timer, signal = (line.split(maxsplit=2) for line in said.out.splitlines()[1:4])
    assert charge[:2] == ["root.0", "orders.charge"]
    assert '"receipt for A"' in charge[2]
    assert charge[2].rstrip().endswith("receipt = await charge(order)")
    assert timer[:2] == ["root.1", "timer"]
    assert "is_approved = await approval.receive()" in signal[2]
    assert asyncio.run(rows(orders_url)) == before


def test_json_has_file_line_and_value(perdure_command: Command, orders_url: str) -> None:
    run = ids(orders_url)[orders.WAITING]
    said = perdure_command("replay", run, TARGET, "--store", orders_url, "-o", "json")
    shown = json.loads(said.out)
    assert (shown["run_id"], shown["divergence"]) == (run, None)
    charge, _, signal = shown["steps"]
    assert (charge["outcome"], charge["value"]) == ("ok", '"receipt for C"')
    assert charge["file"].endswith("orders.py")
    assert (
        Path(charge["file"]).read_text().splitlines()[charge["line"] - 1].strip()
        == charge["source"]
    )
    assert (signal["what"], signal["outcome"]) == ("signal approval", "open")


def test_local_variables_of_a_failed_run_are_those_at_the_line_that_raised(
    perdure_command: Command, orders_url: str
) -> None:
    said = perdure_command("replay", ids(orders_url)[orders.FAILED], TARGET, "--store", orders_url)
    assert said.code == 0
    assert "in refuse, raised ValueError: no receipt for B" in said.out
    assert "  receipt = 'receipt for B'\n  reason = 'no receipt for B'\n" in said.out


def test_replay_stops_at_the_step_that_is_named(perdure_command: Command, orders_url: str) -> None:
    run = ids(orders_url)[orders.COMPLETED]
    said = perdure_command("replay", run, TARGET, "--to", "root.1", "--store", orders_url)
    assert said.code == 0
    assert "root.2" not in said.out
    assert "receipt = 'receipt for A'" in said.out
    assert "is_approved" not in said.out
    said = perdure_command("replay", run, TARGET, "--to", "root.9", "--store", orders_url)
    assert (said.code, "has no step 'root.9': its last steps are" in said.err) == (REFUSED, True)


def test_code_that_diverges_is_shown_with_both_sides(
    perdure_command: Command, sqlite_orders: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ids(sqlite_orders)[orders.COMPLETED]
    monkeypatch.setitem(registry._known, ("program", "orders.checkout"), {})

    @workflow(name="orders.checkout")
    async def checkout(order: str) -> str:
        return await orders.charge(order.lower())

    said = perdure_command("replay", run, TARGET, "--store", sqlite_orders)
    assert said.code == FAILED
    assert "- journal: InvokeScheduled" in said.err
    assert "+ program: InvokeScheduled" in said.err


def test_exported_run_replays_without_its_store(
    perdure_command: Command, orders_url: str, tmp_path: Path
) -> None:
    run, file = ids(orders_url)[orders.FAILED], tmp_path / "run.jsonl"
    said = perdure_command("runs", "export", run, file, "--store", orders_url)
    assert (said.code, f"perdure replay {file}" in said.out) == (0, True)
    assert file.stat().st_mode & 0o077 == 0
    said = perdure_command("replay", file, TARGET, "--store", f"sqlite:///{tmp_path}/none.db")
    assert (said.code, "raised ValueError: no receipt for B" in said.out) == (0, True)
    again = perdure_command("runs", "export", run, file, "--store", orders_url)
    assert (again.code, "can't be written" in again.err) == (REFUSED, True)


@pytest.mark.parametrize("field", ["seq", "at_ms"])
def test_changed_export_is_refused(
    perdure_command: Command, sqlite_orders: str, tmp_path: Path, field: str
) -> None:
    run, file = ids(sqlite_orders)[orders.COMPLETED], tmp_path / "run.jsonl"
    perdure_command("runs", "export", run, file, "--store", sqlite_orders)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    lines[2][field] += 1
    file.write_text("\n".join(map(json.dumps, lines)))
    said = perdure_command("replay", file, TARGET)
    assert said.code == REFUSED
    assert "was changed" in said.err


def debugged(url: str, run: str, at: str | None, *commands: str) -> str:
    """What a debugger prints while these commands are typed."""
    heard, typed = io.StringIO(), io.StringIO("".join(f"{each}\n" for each in commands))
    step = None if at is None else StepId(at)
    debugger = StepDebugger(step, stdin=typed, stdout=heard)
    assert replay_run(orders.engine, run, StopAt(step, debugger), url, "table") == 0
    return heard.getvalue()


def test_debugger_stops_in_the_users_code_with_its_local_variables(orders_url: str) -> None:
    run = ids(orders_url)[orders.COMPLETED]
    heard = debugged(orders_url, run, "root.0", "p order", "w", "n", "p receipt", "c")
    assert "-> receipt = await charge(order)\n(Pdb) 'A'" in heard
    assert "machine.py" not in heard
    assert "-> await perdure.sleep(timedelta(milliseconds=1))\n(Pdb) 'receipt for A'" in heard


def test_debugger_continues_to_a_breakpoint_behind_later_steps(orders_url: str) -> None:
    run = ids(orders_url)[orders.COMPLETED]
    last = next(
        number
        for number, line in enumerate(Path(orders.__file__).read_text().splitlines(), 1)
        if "return receipt if is_approved" in line
    )
    heard = debugged(orders_url, run, "root.0", f"b {last}", "c", "p is_approved, receipt", "c")
    assert "(True, 'receipt for A')" in heard


def test_debugger_opens_where_a_run_failed_and_where_it_waits(orders_url: str) -> None:
    runs = ids(orders_url)
    heard = debugged(orders_url, runs[orders.FAILED], None, "p reason", "q")
    assert "-> raise ValueError(reason)\n(Pdb) 'no receipt for B'" in heard
    heard = debugged(orders_url, runs[orders.WAITING], None, "p receipt", "q")
    assert "-> is_approved = await approval.receive()\n(Pdb) 'receipt for C'" in heard


@pytest.mark.parametrize("commands", [("q",), ("n", "q")])
def test_quitting_the_debugger_is_no_divergence(
    sqlite_orders: str, commands: tuple[str, ...]
) -> None:
    debugged(sqlite_orders, ids(sqlite_orders)[orders.COMPLETED], "root.0", *commands)


def test_debugger_reads_a_terminal(sqlite_orders: str) -> None:
    run = ids(sqlite_orders)[orders.FAILED]
    arguments = ["replay", run, TARGET, "--pdb", "--store", sqlite_orders]
    done = subprocess.run(
        [*COMMAND, *arguments], input="p receipt\nq\n", capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "'receipt for B'" in done.stdout


GREET = """\
graph: replayed
version: "1"
input: {who: str}
activities:
  pay: {worker: orders.charge, input: {order: who}, output: {receipt: result}}
  out: {output: receipt}
transitions:
  - pay -> out
"""


def test_run_of_a_graph_is_replayed_node_by_node(perdure_command: Command, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/graphs.db"

    async def run_graph() -> str:
        async with Engine(url) as engine:
            graph = load_graph(_file(tmp_path))
            await engine.deploy(graph)
            await engine.activate("replayed", "1")
            run = await engine.start_graph("replayed", {"who": "D"})
            assert await run.result(60) == "receipt for D"
            return run.run_id

    run = asyncio.run(run_graph())
    said = perdure_command("replay", run, TARGET, "--store", url)
    assert (said.code, said.err) == (0, "")
    assert '"receipt for D"' in said.out
    said = perdure_command("replay", run, TARGET, "--pdb", "--store", url)
    assert (said.code, "has no code to debug" in said.err) == (REFUSED, True)


def _file(folder: Path) -> Path:
    path = folder / "replayed.yaml"
    path.write_text(GREET)
    return path
