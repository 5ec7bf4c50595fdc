"""The floor: what the bare drivers reach with the rows of a step, 7 of them, in groups.

Imports nothing of Perdure. Prints figures as JSON:

- `python bench/floor.py URL steps SUBMITTERS STEPS`: steps per second, and the median time of one commit;
- `python bench/floor.py URL rows ENTRIES ACCOUNTS COMMITS`: the time in which one run gets so many rows of that
  shape, in so many commits of equal size.
"""

import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import apsw
import asyncpg

EVENTS_PER_STEP = 5
ACCOUNTS_PER_STEP = 2
REPEATS = 5
BODY = '{"type":"InvokeCompleted","promise_id":"root.1234","attempt":1}'
PAYLOAD = b"0123456789abcdef" + b'{"total": 42, "currency": "EUR"}'
HASH = bytes(range(32))

SCHEMA = """
CREATE TABLE floor_event (run_id {text} NOT NULL, seq {integer} NOT NULL, at_ms {integer} NOT NULL,
    body {text} NOT NULL, prev {blob} NOT NULL, sealed {blob}, PRIMARY KEY (run_id, seq)){tail};
CREATE TABLE floor_ledger (run_id {text} NOT NULL, account {text} NOT NULL,
    balance {integer} NOT NULL, PRIMARY KEY (run_id, account)){tail};
"""


Rows = tuple[list[Any], list[Any]]
"""What one commit writes: events and accounts."""


def rows_of(runs: list[str], number: int, events: range, accounts: range) -> Rows:
    """The rows that a commit adds to each run."""
    now = 1_700_000_000_000 + number
    return (
        [(run, n, now, BODY, HASH, PAYLOAD) for run in runs for n in events],
        [(run, f"step:root.{n}", 1_100_000_000_000) for run in runs for n in accounts],
    )


def piece(number: int, size: int) -> range:
    return range(number * size, (number + 1) * size)


def steps_of(submitters: int, steps: int) -> Iterator[Rows]:
    """One step of each run, commit by commit."""
    runs = run_ids(submitters)
    for step in range(steps):
        yield rows_of(runs, step, piece(step, EVENTS_PER_STEP), piece(step, ACCOUNTS_PER_STEP))


def shares_of(events: int, accounts: int, commits: int) -> Iterator[Rows]:
    """The rows of one run, in equal shares."""
    runs = run_ids(1)
    for n in range(commits):
        ends = [(n * rows // commits, (n + 1) * rows // commits) for rows in (events, accounts)]
        yield rows_of(runs, n, *(range(*end) for end in ends))


def run_ids(count: int) -> list[str]:
    now_ms = time.time_ns() // 1_000_000
    return [f"r_{now_ms:012x}7{os.urandom(10).hex()[:19]}" for _ in range(count)]


def sqlite_floor(path: str, commits: Iterable[Rows]) -> list[float]:
    connection = apsw.Connection(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA wal_autocheckpoint = 4000")
    connection.execute("PRAGMA cache_size = -65536")
    types = {"text": "TEXT", "integer": "INTEGER", "blob": "BLOB"}
    connection.execute(SCHEMA.format(**types, tail=" WITHOUT ROWID"))
    times: list[float] = []
    for events, accounts in commits:
        began = time.perf_counter()
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("INSERT INTO floor_event VALUES (?, ?, ?, ?, ?, ?)", events)
        connection.executemany("INSERT INTO floor_ledger VALUES (?, ?, ?)", accounts)
        connection.execute("COMMIT")
        times.append(time.perf_counter() - began)
    return times


async def postgres_floor(url: str, commits: Iterable[Rows]) -> list[float]:
    connection = await asyncpg.connect(url)
    types = {"text": "text", "integer": "bigint", "blob": "bytea"}
    await connection.execute(SCHEMA.format(**types, tail=""))
    times: list[float] = []
    for events, accounts in commits:
        began = time.perf_counter()
        async with connection.transaction():
            await connection.execute(
                "INSERT INTO floor_event SELECT * FROM unnest($1::text[], $2::bigint[],"
                " $3::bigint[], $4::text[], $5::bytea[], $6::bytea[])",
                *(list(column) for column in zip(*events, strict=True)),
            )
            await connection.execute(
                "INSERT INTO floor_ledger SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[])",
                *(list(column) for column in zip(*accounts, strict=True)),
            )
        times.append(time.perf_counter() - began)
    await connection.close()
    return times


def times_of(url: str, commits: Iterable[Rows]) -> list[float]:
    """The seconds that each commit takes; making its rows is not counted."""
    if url.startswith("sqlite:///"):
        return sqlite_floor(url.removeprefix("sqlite:///"), commits)
    return asyncio.run(postgres_floor(url, commits))


def measure_steps(url: str, submitters: int, steps: int) -> dict[str, float]:
    times = times_of(url, steps_of(submitters, steps))
    return {
        "steps_per_s": len(times) * submitters / sum(times),
        "commit_ms": statistics.median(times) * 1000,
    }


def measure_rows(url: str, events: int, accounts: int, commits: int) -> dict[str, float]:
    shares = [rows for _ in range(1 + REPEATS) for rows in shares_of(events, accounts, commits)]
    times = times_of(url, shares)
    # The first is not counted: statements are prepared, and the file grows its first pages.
    runs = [sum(times[n * commits : (n + 1) * commits]) for n in range(1, 1 + REPEATS)]
    return {"ms": statistics.median(runs) * 1000}


MEASURES: dict[str, Callable[..., dict[str, float]]] = {
    "steps": measure_steps,
    "rows": measure_rows,
}


def main() -> None:
    url, what, *sizes = sys.argv[1:]
    figures = MEASURES[what](url, *map(int, sizes))
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main()
