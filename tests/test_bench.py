"""The benchmarks measure what they say: every program at a small size, and the arithmetic beside them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench import floor
from bench.parts import ON_REQUEST, PARTS
from bench.report import Goal
from tests.paths import ROOT

PATIENCE_S = 100

PROGRAMS = {
    "active": ["-m", "bench.active", "URL", "5", "3"],
    "chain-chain": ["-m", "bench.chain", "URL", "chain", "5", "3"],
    "chain-single": ["-m", "bench.chain", "URL", "single", "5", "1"],
    "committer": ["-m", "bench.committer", "URL", "4", "5"],
    "fanout": ["-m", "bench.fanout", "URL", "20"],
    "floor-rows": ["bench/floor.py", "URL", "rows", "30", "10", "3"],
    "floor-steps": ["bench/floor.py", "URL", "steps", "4", "5"],
    "latency": ["-m", "bench.latency", "URL", "100"],
    "memory": ["-m", "bench.memory", "URL", "20", "2"],
    "recovery": ["-m", "bench.recovery", "URL", "20"],
    "takeover": ["-m", "bench.takeover", "URL", "20", "killed"],
}


def figures_of(command: list[str], folder: Path) -> dict[str, float]:
    words = [f"sqlite:///{folder}/bench.db" if word == "URL" else word for word in command]
    done = subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_program_measures_something(program: str, tmp_path: Path) -> None:
    figures = figures_of(PROGRAMS[program], tmp_path)
    # A process may have had the memory for a few more runs already.
    assert figures
    assert all(value > 0 for name, value in figures.items() if name != "kb_per_run"), figures


def test_the_fan_out_counts_what_it_writes(tmp_path: Path) -> None:
    figures = figures_of(PROGRAMS["fanout"], tmp_path)
    # Scheduled, started and completed for each task; start, wait, resume and end once.
    assert figures["entries"] == 3 * 20 + 4
    assert figures["accounts"] == 20
    assert 2 <= figures["commits"] <= 21


def test_a_warm_step_of_the_chain_is_one_bundle(tmp_path: Path) -> None:
    assert figures_of(PROGRAMS["chain-chain"], tmp_path)["bundles_per_step"] == 1


def test_the_journal_of_the_long_run_is_replayed_in_another_process(tmp_path: Path) -> None:
    long = figures_of(["-m", "bench.chain", "URL", "long", "1", "30"], tmp_path)
    replay = figures_of(["-m", "bench.replay", "URL"], tmp_path)
    assert replay["steps"] == 30
    assert all(value > 0 for value in (long | replay).values())


@pytest.mark.deep
def test_every_sleeper_wakes(tmp_path: Path) -> None:
    figures = figures_of(["-m", "bench.sleepers", "URL", "1500"], tmp_path)
    assert figures["woken"] == 1500
    assert figures["late_worst_ms"] >= figures["late_p50_ms"] > 0


def test_the_floor_writes_all_rows_of_a_run_once() -> None:
    commits = list(floor.shares_of(100, 7, 3))
    events = [row[1] for share, _ in commits for row in share]
    accounts = [row[1] for _, share in commits for row in share]
    assert len(commits) == 3
    assert events == list(range(100))
    assert accounts == [f"step:root.{n}" for n in range(7)]


def test_the_floor_writes_seven_rows_a_step() -> None:
    for events, accounts in floor.steps_of(3, 4):
        assert (len(events), len(accounts)) == (3 * 5, 3 * 2)


@pytest.mark.parametrize(
    ("measured", "is_least", "holds"),
    [(2.0, True, True), (1.99, True, False), (2.0, False, True), (2.01, False, False)],
)
def test_a_goal_holds_up_to_its_bound(measured: float, is_least: bool, holds: bool) -> None:
    goal = Goal("speed", "sqlite", measured, 2.0, is_least, "")
    assert goal.holds is holds
    assert goal.cells()[-1] == ("yes" if holds else "**no**")


def test_no_part_is_in_both_lists() -> None:
    assert not PARTS.keys() & ON_REQUEST.keys()
