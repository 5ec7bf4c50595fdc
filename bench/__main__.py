"""`make bench`: the committer against the floor, in one run, as a table of ratios.

Floor and committer take turns, so that a change of the machine's mood hits both; the median of the
rounds counts.
"""

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import apsw
import asyncpg

from tests.postgres_server import PostgresServer

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))

STEPS = {1: 2000, 16: 500, 500: 40}
"""Steps of each run, by the number of submitters."""

Figures = dict[str, float]


def measure(command: list[str]) -> dict[str, Any]:
    done = subprocess.run([sys.executable, *command], check=True, capture_output=True, text=True)
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def median(rounds: list[Figures]) -> Figures:
    return {key: statistics.median(figures[key] for figures in rounds) for key in rounds[0]}


def compare(store: str, submitters: int, postgres: str) -> tuple[Figures, Figures, Figures]:
    """Floor, committer, and committer with the journal: in turns, each on a database of its own."""
    floor, ours = [], []
    size = [str(submitters), str(STEPS[submitters])]
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as folder:
            place = str(Path(folder, "floor.db")) if store == "sqlite" else postgres
            url = f"sqlite:///{folder}/ours.db" if store == "sqlite" else postgres
            floor.append(measure(["bench/floor.py", store, place, *size]))
            ours.append(measure(["-m", "bench.committer", url, *size]))
    committer = median([figures["committer"] for figures in ours])
    return median(floor), committer, median([figures["with_journal"] for figures in ours])


def machine() -> str:
    cpus = Path("/proc/cpuinfo")
    names = [
        x.partition(":")[2].strip() for x in cpus.read_text().splitlines() if "model name" in x
    ]
    return (
        f"{names[0] if names else platform.machine()}, {os.cpu_count()} cores; "
        f"Python {platform.python_version()}, SQLite {apsw.sqlite_lib_version()}, "
        f"asyncpg {asyncpg.__version__}"
    )


HEAD = """
steps/s, and the median time of one commit as its submitter sees it; ratios to the floor

| store | submitters | floor | committer | ratio | with journal | ratio | floor | committer | ratio |
|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|
"""


def row(store: str, submitters: int, postgres: str) -> str:
    floor, committer, journal = compare(store, submitters, postgres)
    base, raw = floor["steps_per_s"], floor["commit_ms"]
    speed, whole, wait = committer["steps_per_s"], journal["steps_per_s"], committer["commit_ms"]
    return (
        f"| {store} | {submitters} | {base:,.0f} | {speed:,.0f} | {speed / base:.2f} "
        f"| {whole:,.0f} | {whole / base:.2f} | {raw:.2f} ms | {wait:.2f} ms | {wait / raw:.2f} |\n"
    )


def main() -> None:
    sys.stdout.write(f"{machine()}; median of {ROUNDS} rounds\n{HEAD}")
    with PostgresServer() as server:
        for store in ("sqlite", "postgres"):
            for submitters in STEPS:
                sys.stdout.write(row(store, submitters, server.url()))
                sys.stdout.flush()


if __name__ == "__main__":
    main()
