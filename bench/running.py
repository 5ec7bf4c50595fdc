"""Running the measured programs: each in a process and on a database of its own, in turns."""

import asyncio
import copy
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Self

import asyncpg

from bench import COLLECTOR
from tests.pgbouncer import pooled
from tests.postgres_server import PostgresServer

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))

SCALE = float(os.environ.get("BENCH_SCALE", "1"))
"""Less than 1 makes a rehearsal: everything is measured, and the figures mean nothing."""

STORES = ("sqlite", "postgres")

POOLED = "pgbouncer"
"""The store's name for Postgres behind a pooler with `pool_mode=transaction`."""

RIVAL = Path(".venv-bench/dbos/bin/python")
"""DBOS has an environment of its own, so that its requirements are not ours."""

RESTATE = Path(".venv-bench/restate")
"""Restate too. Its server is below, if there was npm to install it."""

Figures = dict[str, float]
Program = Callable[[], Figures]


def scaled(number: int) -> int:
    return max(2, round(number * SCALE))


def restate_server() -> Path | None:
    """Restate's program, if it is installed."""
    packages = RESTATE / "server/node_modules/@restatedev"
    return next(packages.glob("restate-server-*/bin/restate-server"), None)


@contextmanager
def behind_pooler(url: str) -> Iterator[str]:
    """The URL of a database behind a pooler that gives each transaction another session."""
    with pooled(url, "transaction") as pool:
        yield f"{pool}?statement_cache_size=0"


class Bench:
    """The store to measure on. Every program gets an empty database, unless it names one."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._numbers = count()
        self._environment: dict[str, str] = {}

    def with_default_collector(self) -> Self:
        """The same, but its processes of ours have Python's garbage collector as it is by default."""
        other = copy.copy(self)
        other._environment = {COLLECTOR: "default"}
        return other

    @contextmanager
    def database(self, store: str) -> Iterator[str]:
        """The URL of a database that is empty, and gone afterwards."""
        if store == "sqlite":
            with tempfile.TemporaryDirectory() as folder:
                yield f"sqlite:///{folder}/bench.db"
            return
        if store == POOLED:
            with self.database("postgres") as url, behind_pooler(url) as pool:
                yield pool
            return
        name = f"bench_{next(self._numbers)}"
        asyncio.run(self._execute(f"CREATE DATABASE {name}"))
        try:
            yield self._server.url(name)
        finally:
            asyncio.run(self._execute(f"DROP DATABASE {name} WITH (FORCE)"))

    async def _execute(self, sql: str) -> None:
        connection = await asyncpg.connect(self._server.url())
        try:
            await connection.execute(sql)
        finally:
            await connection.close()

    def floor(self, store: str, *arguments: object) -> Figures:
        with self.database(store) as url:
            return _figures([sys.executable, "bench/floor.py", url, *map(str, arguments)])

    def rival(self, store: str, *arguments: object) -> Figures:
        with self.database(store) as url:
            return _figures([str(RIVAL), "-I", "bench/dbos_chain.py", url, *map(str, arguments)])

    def queued_rival(self, store: str, *arguments: object) -> Figures:
        with self.database(store) as url:
            return _figures([str(RIVAL), "-I", "bench/dbos_queued.py", url, *map(str, arguments)])

    def restate(self, server: Path, *arguments: object) -> Figures:
        python = str(RESTATE / "bin/python")
        return _figures([python, "-I", "bench/restate_chain.py", str(server), *map(str, arguments)])

    def ours(self, store: str, program: str, *arguments: object) -> Figures:
        with self.database(store) as url:
            return self.ours_on(url, program, *arguments)

    def ours_on(self, url: str, program: str, *arguments: object) -> Figures:
        command = [sys.executable, "-m", f"bench.{program}", url, *map(str, arguments)]
        return _figures(command, self._environment)


def in_turns(*programs: Program, rounds: int = ROUNDS) -> list[Figures]:
    """The medians of each program's figures.

    They take turns, so that a change of the machine's mood hits all of them.
    """
    measured = [[program() for program in programs] for _ in range(rounds)]
    return [_median(rounds_of_one) for rounds_of_one in zip(*measured, strict=True)]


def _median(rounds: Sequence[Figures]) -> Figures:
    return {key: statistics.median(figures[key] for figures in rounds) for key in rounds[0]}


def _figures(command: Sequence[str], more: Mapping[str, str] | None = None) -> Figures:
    """What a program prints: its figures, as JSON. What it has to say besides goes to stderr."""
    if not Path(command[0]).exists():
        raise SystemExit(f"{command[0]} is missing: `make bench` makes it")
    environment = os.environ | dict(more or {})
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, env=environment)
    if done.returncode:
        raise SystemExit(f"status {done.returncode} of {' '.join(command)}")
    figures: Figures = json.loads(done.stdout)
    return figures
