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

import apsw
import asyncpg

from tests.postgres_server import PostgresServer

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))
SECONDS = os.environ.get("BENCH_SECONDS", "3")
SUBMITTERS = (1, 16, 500)

Figures = dict[str, float]


def measure(command: list[str]) -> Figures:
    done = subprocess.run([sys.executable, *command], check=True, capture_output=True, text=True)
    figures: Figures = json.loads(done.stdout)
    return figures


def median(rounds: list[Figures]) -> Figures:
    return {key: statistics.median(figures[key] for figures in rounds) for key in rounds[0]}


def compare(store: str, submitters: int, postgres: str) -> tuple[Figures, Figures]:
    """Floor and committer, in turns, each on a database of its own."""
    floor, ours = [], []
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as folder:
            place = str(Path(folder, "floor.db")) if store == "sqlite" else postgres
            url = f"sqlite:///{folder}/ours.db" if store == "sqlite" else postgres
            size = [str(submitters), SECONDS]
            floor.append(measure(["bench/floor.py", store, place, *size]))
            ours.append(measure(["-m", "bench.committer", url, *size]))
    return median(floor), median(ours)


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


def main() -> None:
    out = sys.stdout.write
    out(f"{machine()}; {ROUNDS} rounds of {SECONDS} s\n\n")
    out(
        "| store | submitters | floor steps/s | ours steps/s | ratio | floor commit | ours commit | ratio |\n"
    )
    out("|---|---:|---:|---:|---:|---:|---:|---:|\n")
    with PostgresServer() as server:
        for store in ("sqlite", "postgres"):
            for submitters in SUBMITTERS:
                floor, ours = compare(store, submitters, server.url())
                speed = ours["steps_per_s"] / floor["steps_per_s"]
                latency = ours["commit_ms"] / floor["commit_ms"]
                out(
                    f"| {store} | {submitters} | {floor['steps_per_s']:,.0f} "
                    f"| {ours['steps_per_s']:,.0f} | {speed:.2f} | {floor['commit_ms']:.2f} ms "
                    f"| {ours['commit_ms']:.2f} ms | {latency:.2f} |\n"
                )
                sys.stdout.flush()


if __name__ == "__main__":
    main()
