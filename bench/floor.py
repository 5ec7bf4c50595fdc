"""The floor: what the bare drivers reach with the rows of a step, 7 of them, in groups.

Imports nothing of Perdure. `python bench/floor.py sqlite FILE SUBMITTERS STEPS` (or `postgres URL ...`)
prints steps per second and the median time of one commit as JSON.
"""

import asyncio
import json
import os
import statistics
import sys
import time
from typing import Any

import apsw
import asyncpg

EVENTS_PER_STEP = 5
ACCOUNTS_PER_STEP = 2
BODY = '{"type":"InvokeCompleted","promise_id":"root.1234","attempt":1}'
PAYLOAD = b"0123456789abcdef" + b'{"total": 42, "currency": "EUR"}'
HASH = bytes(range(32))

SCHEMA = """
CREATE TABLE floor_event (run_id {text} NOT NULL, seq {integer} NOT NULL, at_ms {integer} NOT NULL,
    body {text} NOT NULL, prev {blob} NOT NULL, sealed {blob}, PRIMARY KEY (run_id, seq)){tail};
CREATE TABLE floor_ledger (run_id {text} NOT NULL, account {text} NOT NULL,
    balance {integer} NOT NULL, PRIMARY KEY (run_id, account)){tail};
"""


def rows_of(runs: list[str], step: int) -> tuple[list[Any], list[Any]]:
    """The rows of one step of each run."""
    first = step * EVENTS_PER_STEP
    now = 1_700_000_000_000 + step
    events = [
        (run, first + n, now, BODY, HASH, PAYLOAD) for run in runs for n in range(EVENTS_PER_STEP)
    ]
    accounts = [
        (run, f"step:root.{step * ACCOUNTS_PER_STEP + n}", 1_100_000_000_000)
        for run in runs
        for n in range(ACCOUNTS_PER_STEP)
    ]
    return events, accounts


def run_ids(count: int) -> list[str]:
    now_ms = time.time_ns() // 1_000_000
    return [f"r_{now_ms:012x}7{os.urandom(10).hex()[:19]}" for _ in range(count)]


def sqlite_floor(path: str, submitters: int, steps: int) -> list[float]:
    connection = apsw.Connection(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA wal_autocheckpoint = 4000")
    connection.execute("PRAGMA cache_size = -65536")
    types = {"text": "TEXT", "integer": "INTEGER", "blob": "BLOB"}
    connection.execute(SCHEMA.format(**types, tail=" WITHOUT ROWID"))
    runs = run_ids(submitters)
    times: list[float] = []
    for step in range(steps):
        events, accounts = rows_of(runs, step)
        began = time.perf_counter()
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("INSERT INTO floor_event VALUES (?, ?, ?, ?, ?, ?)", events)
        connection.executemany("INSERT INTO floor_ledger VALUES (?, ?, ?)", accounts)
        connection.execute("COMMIT")
        times.append(time.perf_counter() - began)
    return times


async def postgres_floor(url: str, submitters: int, steps: int) -> list[float]:
    connection = await asyncpg.connect(url)
    await connection.execute("DROP TABLE IF EXISTS floor_event, floor_ledger")
    types = {"text": "text", "integer": "bigint", "blob": "bytea"}
    await connection.execute(SCHEMA.format(**types, tail=""))
    runs = run_ids(submitters)
    times: list[float] = []
    for step in range(steps):
        events, accounts = rows_of(runs, step)
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


def main() -> None:
    store, place, submitters, steps = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    if store == "sqlite":
        times = sqlite_floor(place, submitters, steps)
    else:
        times = asyncio.run(postgres_floor(place, submitters, steps))
    figures = {
        "steps_per_s": len(times) * submitters / sum(times),
        "commit_ms": statistics.median(times) * 1000,
    }
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main()
