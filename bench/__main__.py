"""`make bench`: the committer and the engine against the floor, in one run, as tables of ratios.

Floor, committer and engine take turns, so that a change of the machine's mood hits all; the median of
the rounds counts. `python -m bench workflows` measures those only.
"""

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import asyncpg

from tests.postgres_server import PostgresServer

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))

STEPS = {1: 1000, 16: 250, 500: 20}
"""Steps of each run, by the number of submitters."""

CHAINS = 500
"""Workflows at once, and so the submitters of the floor that they are compared with."""

LONG_ROUNDS = min(ROUNDS, 3)
"""A run of 5,000 steps waits for 5,000 commits."""

STORES = ("sqlite", "postgres")

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


CHAIN_HEAD = """
workflows: 500 runs at once of 10 steps each, and of one step; ratio to the floor at 500 submitters

| store | floor, steps/s | chain, steps/s | ratio | bundles per step | bundles per commit | runs of one step/s |
|---|---:|---:|---:|---:|---:|---:|
"""


def chain_row(store: str, postgres: str) -> str:
    floor, chain, single = [], [], []
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as folder:
            place = str(Path(folder, "floor.db")) if store == "sqlite" else postgres
            size = [str(CHAINS), str(STEPS[CHAINS])]
            floor.append(measure(["bench/floor.py", store, place, *size]))
            chain.append(measure_workflows("chain", store, postgres))
            single.append(measure_workflows("single", store, postgres))
    base, ours, runs = median(floor)["steps_per_s"], median(chain), median(single)["runs_per_s"]
    speed, bundles, group = (
        ours[name] for name in ("steps_per_s", "bundles_per_step", "bundles_per_group")
    )
    return (
        f"| {store} | {base:,.0f} | {speed:,.0f} | {speed / base:.2f} | {bundles:.3f} | {group:.0f} "
        f"| {runs:,.0f} |\n"
    )


LONG_HEAD = """
one run of 5,000 steps: each of its first 500 and of its last 500, by the clock and in work of the loop's thread

| store | first | last | ratio | first, work | last, work | ratio |
|---|---:|---:|---:|---:|---:|---:|
"""


def long_row(store: str, postgres: str) -> str:
    figures = median([measure_workflows("long", store, postgres) for _ in range(LONG_ROUNDS)])
    first, last, first_work, last_work = figures.values()
    return (
        f"| {store} | {first:.2f} ms | {last:.2f} ms | {last / first:.2f} "
        f"| {first_work:.3f} ms | {last_work:.3f} ms | {last_work / first_work:.2f} |\n"
    )


def measure_workflows(what: str, store: str, postgres: str) -> Figures:
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/ours.db" if store == "sqlite" else postgres
        return measure(["-m", "bench.chain", url, what])


def committer_tables(postgres: str) -> Iterator[str]:
    yield HEAD
    for store in STORES:
        for submitters in STEPS:
            yield row(store, submitters, postgres)


def workflow_tables(postgres: str) -> Iterator[str]:
    yield CHAIN_HEAD
    for store in STORES:
        yield chain_row(store, postgres)
    yield LONG_HEAD
    for store in STORES:
        yield long_row(store, postgres)


TABLES = {"committer": committer_tables, "workflows": workflow_tables}


def main() -> None:
    say(f"{machine()}; median of {ROUNDS} rounds\n")
    with PostgresServer() as server:
        for name in sys.argv[1:] or TABLES:
            for text in TABLES[name](server.url()):
                say(text)


def say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
