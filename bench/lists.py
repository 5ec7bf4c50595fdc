"""The first page of each list in a store of many runs: `python -m bench.lists URL RUNS` prints milliseconds as JSON.

They are those of the fastest of several calls: what the page costs when nothing else runs.

The runs are written as rows, not by programs: lists read rows, and a million programs would take an hour. Each filter
selects at least a hundredth of the runs, so that its page is full.
"""

import asyncio
import json
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw
import asyncpg

from perdure import Engine

BEGAN_MS = 1_700_000_000_000
PAGE = 100
CALLS = 60

RUNS = """
INSERT INTO {run} (id, scope, program, version, digest, key, owner, epoch, seq, head, semaphore, status, created_at_ms,
                   closed_at_ms, parked, chain, parent, forked_from, error)
SELECT {id}, 's' || (i % 5), CASE WHEN i % 100 = 3 THEN 'rare' ELSE 'p' || (i % 10) END, '1', 'd',
       CASE WHEN i % 2 = 0 THEN 'order-' || i END, CASE WHEN i % 100 IN (7, 17) THEN 'h_' || (i % 3) END, 1, 5, {blob},
       CASE WHEN i % 100 IN (7, 17) THEN 1 ELSE 0 END,
       CASE i % 100 WHEN 5 THEN 'failed' WHEN 7 THEN 'blocked' WHEN 17 THEN 'blocked' ELSE 'completed' END, {began} + i,
       CASE WHEN i % 100 NOT IN (7, 17) THEN {began} + i + 1000 END,
       CASE WHEN i % 100 = 17 THEN 'unknown: x' END,
       CASE WHEN i % 100 = 9 THEN {first} END, CASE WHEN i % 100 = 11 THEN {first} END,
       CASE WHEN i % 100 = 13 THEN {first} END, CASE WHEN i % 100 = 5 THEN 'f1' END
FROM {numbers}
"""
TAGS = """
INSERT INTO {hook} (run_id, step, kind, mailbox, topic, key, since_ms)
SELECT {id}, 'root', 'key', 'r_' || (i % 100), 'customer', 'c' || (i % 100), 0 FROM {numbers}
"""
ENTRIES = """
INSERT INTO {event} (run_id, seq, at_ms, body, prev)
SELECT {id}, 4, 0, '{{"type":"ExecutionAwaiting","waiting_on":["root.0"],"kind":"signal",'
    || '"signal":{{"name":"approval","promise_id":"root.0"}}}}', {blob}
FROM {numbers} WHERE i % 100 = 7
"""

SQLITE = {
    **{name: f"perdure_{name}" for name in ("run", "hook", "event")},
    "id": f"printf('r_%012x70008000000000000000', {BEGAN_MS} + i)",
    "first": f"printf('r_%012x70008000000000000000', {BEGAN_MS} + 1)",
    "blob": "x'00'",
    "numbers": "(WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count}) SELECT i FROM n)",
}
POSTGRES = {
    **{name: f"perdure.{name}" for name in ("run", "hook", "event")},
    "id": f"'r_' || lpad(to_hex({BEGAN_MS}::bigint + i), 12, '0') || '70008000000000000000'",
    "first": f"'r_' || lpad(to_hex({BEGAN_MS}::bigint + 1), 12, '0') || '70008000000000000000'",
    "blob": "'\\x00'::bytea",
    "numbers": "generate_series(1, {count}) AS n (i)",
}


def time_of(number: int) -> datetime:
    return datetime.fromtimestamp((BEGAN_MS + number) / 1000, UTC)


def filters(count: int, first: str) -> dict[str, dict[str, Any]]:
    return {
        "none": {},
        "status: failed": {"status": "failed"},
        "status: blocked": {"status": "blocked"},
        "program": {"program": "rare"},
        "scope": {"scope": "s1"},
        "scope and program": {"scope": "s3", "program": "p8"},
        "version": {"version": "1"},
        "no such version": {"version": "none"},
        "program and failed": {"program": "p5", "status": "failed"},
        "key prefix": {"key_prefix": "order-"},
        "few keys": {"key_prefix": "order-9876"},
        "tag": {"tags": {"customer": "c42"}},
        "parent": {"parent": first},
        "chain": {"chain": first},
        "forked from": {"forked_from": first},
        "created": {"created": (time_of(count // 2), time_of(count))},
        "created until": {"created": (None, time_of(count // 2))},
        "closed": {"closed": (time_of(count // 2), time_of(count))},
        "parked": {"parked": True},
        "waiting for": {"waiting_for": "approval"},
        "error": {"error": "f1"},
    }


async def fill(url: str, count: int) -> str:
    """Write the runs; returns the id of the first."""
    async with Engine(url, hosts=False):
        pass
    names = dict(SQLITE if url.startswith("sqlite") else POSTGRES)
    names |= {"numbers": names["numbers"].format(count=count), "began": str(BEGAN_MS)}
    statements = [sql.format(**names) for sql in (RUNS, TAGS, ENTRIES)]
    first = f"SELECT {names['first']}"
    if url.startswith("sqlite"):
        connection = apsw.Connection(str(Path(url.removeprefix("sqlite:///"))))
        for sql in statements:
            connection.execute(sql)
        connection.execute("ANALYZE")
        found = str(connection.execute(first).fetchall()[0][0])
        connection.close()
        return found
    session = await asyncpg.connect(url)
    for sql in statements:
        await session.execute(sql)
    await session.execute("VACUUM ANALYZE")
    found = str(await session.fetchval(first))
    await session.close()
    return found


async def measure(url: str, count: int) -> dict[str, float]:
    first = await fill(url, count)
    figures: dict[str, float] = {}
    async with Engine(url, hosts=False) as engine:
        for name, wanted in filters(count, first).items():
            spent = []
            for _ in range(CALLS):
                began = time.perf_counter()
                await engine.runs(limit=PAGE, **wanted)
                spent.append(1000 * (time.perf_counter() - began))
            figures[name] = min(spent)
    return figures


def main() -> None:
    url, count = sys.argv[1:]
    sys.stdout.write(json.dumps(asyncio.run(measure(url, int(count)))) + "\n")


if __name__ == "__main__":
    main()
