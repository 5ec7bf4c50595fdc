"""Admission: `python -m bench.admission URL starts|overload|dequeue COUNT` prints its figures as JSON.

`starts` compares starts under a limit that has a slot for each with free starts. `overload` offers runs at ten times
their limit, and compares what completes per second with callers that offer no more than the limit. `dequeue` admits one
run of many that wait; these are written as rows.
"""

import asyncio
import json
import sys
import time
from pathlib import Path

import apsw
import asyncpg

from perdure import Engine, Limit, LimitReached, task, workflow
from perdure.core.admission.rules import slot_name
from perdure.core.ids import HostId
from perdure.store.opening import open_store

AT_A_TIME = 100
OVER = 10
ROUNDS = 5
DEQUEUES = 30

PENDING_RUNS = """
INSERT INTO {p}run (id, scope, program, version, digest, owner, epoch, seq, head, semaphore, status,
                     created_at_ms, slot)
SELECT {id}, '', 'waiting', '', 'd', NULL, 0, 0, {blob}, 0, 'pending', 0, '{slot}' FROM {numbers}
"""
PLACES = """
INSERT INTO {p}pending (run_id, slot, scope, program, priority, state, ready_at_ms)
SELECT {id}, '{slot}', '', 'waiting', 0, 'ready', 0 FROM {numbers}
"""
LIMIT = """
INSERT INTO {p}limit_key (slot, name, rules, served, arrival_us)
VALUES ('{slot}', 'full', '{{"running":1000000}}', '', 0)
"""
SQLITE = {
    "p": "perdure_",
    "id": "printf('r_%012x70008000000000000000', i)",
    "blob": "x'00'",
    "numbers": "(WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count}) SELECT i FROM n)",
}
POSTGRES = {
    "p": "perdure.",
    "id": "'r_' || lpad(to_hex(i), 12, '0') || '70008000000000000000'",
    "blob": "'\\x00'::bytea",
    "numbers": "generate_series(1, {count}) AS n (i)",
}


@task
async def step(n: int) -> int:
    return n


@workflow
async def free(n: int) -> int:
    return await step(n)


@workflow(limit=Limit("wide", running=1_000_000))
async def limited(n: int) -> int:
    return await step(n)


@workflow(limit=Limit("narrow", running=AT_A_TIME, over="reject"))
async def rejecting(n: int) -> int:
    return await step(n)


async def starts(url: str, count: int) -> dict[str, float]:
    """Microseconds until a start is durable, of many at once: the fastest round."""
    spent: dict[str, list[float]] = {"free": [], "limited": []}
    async with Engine(url) as engine:
        for _ in range(ROUNDS):
            for name, program in (("free", free), ("limited", limited)):
                began = time.perf_counter()
                runs = await engine.start_many([program(n) for n in range(count)])
                spent[name].append(1e6 * (time.perf_counter() - began) / count)
                for run in runs:
                    await run.result()
    return {f"{name}_us": min(each) for name, each in spent.items()}


async def overload(url: str, count: int) -> dict[str, float]:
    """Runs that complete per second, offered as many at a time as the limit allows, and ten times as many."""
    figures: dict[str, float] = {}
    async with Engine(url) as engine:
        for name, callers in (("calm", AT_A_TIME), ("overloaded", OVER * AT_A_TIME)):
            left, refused = count, 0

            async def caller() -> None:
                nonlocal left, refused
                while left > 0:
                    left -= 1
                    try:
                        run = await engine.start(rejecting(left))
                    except LimitReached as reached:
                        left += 1
                        refused += 1
                        await asyncio.sleep(reached.retry_after)
                    else:
                        await run.result()

            began = time.perf_counter()
            await asyncio.gather(*(caller() for _ in range(callers)))
            figures[f"{name}_per_s"] = count / (time.perf_counter() - began)
            figures[f"{name}_refused"] = 1 + refused
    return figures


async def dequeue(url: str, count: int) -> dict[str, float]:
    """Milliseconds in which one run of many is admitted: the fastest of several."""
    await fill(url, count)
    store = await open_store(url)
    spent = []
    for number in range(DEQUEUES):
        running = json.dumps({"running": number + 1})
        slot = slot_name("full", "", "")
        await _execute(
            url, f"UPDATE {_names(url)['p']}limit_key SET rules = '{running}' WHERE slot = '{slot}'"
        )
        began = time.perf_counter()
        admitted = await store.admission.dequeue(HostId("h"), ["waiting"], 1)
        spent.append(1000 * (time.perf_counter() - began))
        assert len(admitted.runs) == 1
    await store.close()
    return {"dequeue_ms": min(spent)}


async def fill(url: str, count: int) -> None:
    """Write runs that wait for one limit."""
    async with Engine(url, hosts=False):
        pass
    names = dict(_names(url))
    names |= {"numbers": names["numbers"].format(count=count), "slot": slot_name("full", "", "")}
    for sql in (LIMIT, PENDING_RUNS, PLACES):
        await _execute(url, sql.format(**names))
    await _execute(url, "ANALYZE")


def _names(url: str) -> dict[str, str]:
    return SQLITE if url.startswith("sqlite") else POSTGRES


async def _execute(url: str, sql: str) -> None:
    if url.startswith("sqlite"):
        connection = apsw.Connection(str(Path(url.removeprefix("sqlite:///"))))
        connection.execute(sql)
        connection.close()
        return
    session = await asyncpg.connect(url)
    await session.execute(sql)
    await session.close()


MEASUREMENTS = {"starts": starts, "overload": overload, "dequeue": dequeue}


def main() -> None:
    url, what, count = sys.argv[1:]
    figures = asyncio.run(MEASUREMENTS[what](url, int(count)))
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main()
