"""`make bench`: Perdure beside the bare drivers and beside DBOS, in one run, as tables of ratios and of goals.

Ours, the floor and DBOS take turns, so that a change of the machine's mood hits all; the median of the rounds
counts. `python -m bench NAME...` measures these parts only.
"""

import os
import platform
import sys
import time
from pathlib import Path

import apsw
import asyncpg

from bench.parts import ON_REQUEST, PARTS
from bench.report import Report
from bench.running import ROUNDS, SCALE, Bench
from tests.postgres_server import PostgresServer


def machine() -> str:
    cpus = Path("/proc/cpuinfo")
    lines = cpus.read_text().splitlines() if cpus.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if "model name" in line]
    return (
        f"{names[0] if names else platform.machine()}, {os.cpu_count()} cores; "
        f"Python {platform.python_version()}, SQLite {apsw.sqlite_lib_version()}, "
        f"asyncpg {asyncpg.__version__}"
    )


def main() -> None:
    parts = PARTS | ON_REQUEST
    names = sys.argv[1:] or list(PARTS)
    if unknown := [name for name in names if name not in parts]:
        raise SystemExit(f"no part {', '.join(unknown)}: there are {', '.join(parts)}")
    report = Report()
    report.say(f"{machine()}; medians of {ROUNDS} rounds")
    if SCALE != 1:
        report.say(f"**a rehearsal at {SCALE:g} of the sizes: the figures mean nothing**")
    began = time.monotonic()
    with PostgresServer() as server:
        bench = Bench(server)
        try:
            for name in names:
                part_began = time.monotonic()
                parts[name](bench, report)
                report.say(f"\npart {name}: {time.monotonic() - part_began:.0f} s")
        finally:
            report.close()
    report.say(f"\n{time.monotonic() - began:.0f} s in all")


if __name__ == "__main__":
    main()
