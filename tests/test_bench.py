"""The benchmarks measure what they say: every program at a small size, and the arithmetic beside them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench import floor, hop_parts, queued_parts
from bench.parts import ON_REQUEST, PARTS
from bench.report import Goal, Report
from bench.running import POOLED, STORES, Bench, Figures, behind_pooler
from tests.paths import ROOT
from tests.pgbouncer import PGBOUNCER
from tests.postgres_server import PostgresServer

PATIENCE_S = 100

PROGRAMS = {
    "admission-starts": ["-m", "bench.admission", "URL", "starts", "5"],
    "admission-overload": ["-m", "bench.admission", "URL", "overload", "50"],
    "admission-dequeue": ["-m", "bench.admission", "URL", "dequeue", "100"],
    "active": ["-m", "bench.active", "URL", "5", "3"],
    "chain-chain": ["-m", "bench.chain", "URL", "chain", "5", "3"],
    "chain-ends": ["-m", "bench.chain", "URL", "ends", "5", "3"],
    "chain-events": ["-m", "bench.chain", "URL", "events", "5", "3"],
    "chain-single": ["-m", "bench.chain", "URL", "single", "5", "1"],
    "committer": ["-m", "bench.committer", "URL", "4", "5"],
    "fanout": ["-m", "bench.fanout", "URL", "20"],
    "fanout-asyncio": ["-m", "bench.fanout", "URL", "20", "asyncio"],
    "floor-rows": ["bench/floor.py", "URL", "rows", "30", "10", "3"],
    "floor-steps": ["bench/floor.py", "URL", "steps", "4", "5"],
    "hops-local": ["-m", "bench.hops", "URL", "local", "2", "0"],
    "hops-queued": ["-m", "bench.hops", "URL", "queued", "2", "0"],
    "hops-signal": ["-m", "bench.hops", "URL", "signal", "2", "0"],
    "hops-started": ["-m", "bench.hops", "URL", "started", "2", "0"],
    "http": ["-m", "bench.http_load", "URL", "20", "2"],
    "latency": ["-m", "bench.latency", "URL", "100"],
    "lists": ["-m", "bench.lists", "URL", "300"],
    "memory": ["-m", "bench.memory", "URL", "20", "2"],
    "queued-chain": ["-m", "bench.queued", "URL", "chain", "3", "2"],
    "queued-fanout": ["-m", "bench.queued", "URL", "fanout", "20"],
    "recovery": ["-m", "bench.recovery", "URL", "20"],
    "takeover": ["-m", "bench.takeover", "URL", "20", "killed"],
}


def figures_of(command: list[str], folder: Path) -> dict[str, float]:
    return figures_on(f"sqlite:///{folder}/bench.db", command)


def figures_on(url: str, command: list[str]) -> dict[str, float]:
    words = [url if word == "URL" else word for word in command]
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


@pytest.mark.parametrize("gather", ["fanout", "fanout-asyncio"])
def test_the_fan_out_counts_what_it_writes(gather: str, tmp_path: Path) -> None:
    figures = figures_of(PROGRAMS[gather], tmp_path)
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


class CannedBench(Bench):
    """Measures nothing: every program of ours is as fast as `speeds` says, each rival does 100 steps/s."""

    def __init__(self, **speeds: Figures) -> None:
        super().__init__(PostgresServer())
        self.speeds = speeds
        self.asked: list[tuple[object, ...]] = []

    def ours(self, store: str, program: str, *arguments: object) -> Figures:
        self.asked.append((store, program, *arguments))
        return self.speeds[str(arguments[0])]

    def queued_rival(self, *_: object) -> Figures:
        return {"steps_per_s": 100}

    def restate(self, *_: object) -> Figures:
        return {"steps_per_s": 100}


def hop(milliseconds: float) -> Figures:
    return {"p50_ms": milliseconds, "p99_ms": 2 * milliseconds, "hops": 300}


def goals_of(said: str) -> dict[tuple[str, str], str]:
    """The goals that a report prints: by name and store, whether each holds."""
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in said.splitlines()]
    return {(row[0], row[1]): row[-1] for row in cells if len(row) == 5}


def test_hops_are_compared_with_local_runs_of_the_same_store(
    capsys: pytest.CaptureFixture[str],
) -> None:
    bench, report = (
        CannedBench(local=hop(1), queued=hop(9), signal=hop(11), started=hop(990)),
        Report(),
    )
    PARTS["hops"](bench, report)
    report.close()
    said = capsys.readouterr().out
    goals = goals_of(said)
    for store in STORES:
        assert goals["queued step, p50 of a local run's", store] == "yes"
        assert goals["signal to result, p50 of a local run's", store] == "**no**"
        assert goals["signal to result, p99 of a local run's", store] == "yes"
        assert goals["run started elsewhere, p99 of a local run's", store] == "**no**"
    found_by = {
        row.split("|")[2].strip(): row.split("|")[-2].strip()
        for row in said.splitlines()
        if "300" in row
    }
    assert found_by == {
        "queued step": "wake-up",
        "signal to result": "wake-up",
        "run started elsewhere": "poll",
    }


@pytest.mark.parametrize(
    ("pooler", "stores", "note"),
    [
        ("/usr/sbin/pgbouncer", {*STORES, POOLED}, "pool_mode=transaction"),
        (None, set(STORES), "pgbouncer is not installed"),
    ],
)
def test_a_report_says_whether_hops_went_through_a_pooler(
    pooler: str | None,
    stores: set[str],
    note: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(hop_parts, "PGBOUNCER", pooler)
    bench = CannedBench(local=hop(1), queued=hop(1), signal=hop(1), started=hop(1))
    PARTS["hops"](bench, Report())
    assert {store for store, *_ in bench.asked} == stores
    assert note in capsys.readouterr().out


def test_queued_chains_are_compared_with_what_ran_beside_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(queued_parts, "restate_server", lambda: Path("restate-server"))
    report = Report()
    bench = CannedBench(chain={"steps_per_s": 1999}, fanout={"ms": 10})
    PARTS["queued"](bench, report)
    report.close()
    goals = goals_of(capsys.readouterr().out)
    for store in STORES:
        assert goals["queued chain, of the local one", store] == "yes"
        assert goals["queued chain, times DBOS", store] == "**no**"
        assert goals["queued chain, times Restate", store] == "yes"
        assert goals["fan-out of ten times the queued tasks", store] == "yes"


def test_a_report_says_that_restate_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(queued_parts, "restate_server", lambda: None)
    report = Report()
    PARTS["queued"](CannedBench(chain={"steps_per_s": 1}, fanout={"ms": 10}), report)
    report.close()
    said = capsys.readouterr().out
    assert queued_parts.NO_RESTATE in said
    assert not [goal for goal, _ in goals_of(said) if "Restate" in goal]


@pytest.mark.postgres
@pytest.mark.skipif(PGBOUNCER is None, reason="pgbouncer is not installed")
def test_hops_are_measured_through_a_pooler(fresh_postgres: str) -> None:
    with behind_pooler(fresh_postgres) as url:
        figures = figures_on(url, PROGRAMS["hops-queued"])
    assert figures["hops"] == 2
    assert figures["p99_ms"] >= figures["p50_ms"] > 0


def test_no_part_is_in_both_lists() -> None:
    assert not PARTS.keys() & ON_REQUEST.keys()
