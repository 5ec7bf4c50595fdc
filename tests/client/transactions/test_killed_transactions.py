"""Real processes, killed among transactional steps: one row for each step, never two, never none."""

import asyncio
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure import Engine
from perdure.store.inspection import audit_store, verify_store
from perdure.store.opening import open_store
from tests.client.transactions.killed_transactions import MAKE, RUNS, STEPS
from tests.paths import ROOT

PATIENCE_S = 60

Property = Callable[[str, object], None]


def live(url: str, log: Path, count: int) -> None:
    """Let a process begin that many more attempts, and kill it."""
    process = subprocess.Popen(command(url, log), cwd=ROOT)
    goal = log.stat().st_size + count
    deadline = time.monotonic() + PATIENCE_S
    try:
        while log.stat().st_size < goal:
            assert process.poll() is None, "it ended before it was killed"
            assert time.monotonic() < deadline
            time.sleep(0.001)
    finally:
        process.kill()
    assert process.wait() == -9


def command(url: str, log: Path) -> list[str]:
    return [sys.executable, "-m", "tests.client.transactions.killed_transactions", url, str(log)]


async def effects(url: str) -> Counter[tuple[int, int]]:
    async with Engine(url) as engine, engine.transaction() as tx:
        rows: list[dict[str, Any]] = await tx.fetch("SELECT run, step FROM effects")
    return Counter((row["run"], row["step"]) for row in rows)


async def drop(url: str) -> None:
    async with Engine(url) as engine, engine.transaction() as tx:
        await tx.execute(MAKE)
        await tx.execute("DELETE FROM effects")


async def completed_steps(url: str) -> tuple[int, Counter[str]]:
    """The number of completed steps in the books, and the number of runs of each program."""
    store = await open_store(url)
    programs: Counter[str] = Counter()
    steps = 0
    try:
        for report in (await audit_store(store), await verify_store(store)):
            assert report.findings == []
        async for books in store.books():
            run = await store.run(books.run_id)
            assert run is not None
            programs[run.program] += 1
            names = [type(entry.event).__name__ for entry in books.entries]
            steps += names.count("InvokeCompleted")
    finally:
        await store.close()
    return steps, programs


def kill_again_and_again(url: str, log: Path, lives: list[int]) -> str:
    log.touch()
    durable = []
    for count in lives:
        live(url, log, count)
        steps, _ = asyncio.run(completed_steps(url))
        durable.append(steps)
    subprocess.run(command(url, log), cwd=ROOT, check=True, timeout=PATIENCE_S)
    steps, programs = asyncio.run(completed_steps(url))
    everything = Counter({(run, step): 1 for run in range(RUNS) for step in range(STEPS)})
    assert asyncio.run(effects(url)) == everything
    assert steps == RUNS * STEPS
    assert programs == {"leaving_marks": RUNS, "thanking": RUNS}
    bodies = log.stat().st_size
    assert bodies > steps, "no kill came in the middle of a body"
    return (
        f"{len(lives)} kills -9 over {RUNS * STEPS} transactional steps: {', '.join(map(str, durable))} were "
        f"durable at each; {bodies} bodies ran, and left {steps} rows"
    )


def lives(count: int, seed: int) -> list[int]:
    chance = random.Random(seed)
    return [chance.randrange(10, RUNS * STEPS // (count + 2)) for _ in range(count)]


def test_each_step_leaves_one_row_whatever_is_killed(
    tmp_path: Path, record_property: Property
) -> None:
    url = f"sqlite:///{tmp_path}/killed.db"
    figures = kill_again_and_again(url, tmp_path / "log", lives(6, seed=1))
    record_property("explored", f"sqlite: {figures}")


@pytest.mark.postgres
def test_each_step_leaves_one_row_on_postgres(
    emptied_postgres: str, tmp_path: Path, record_property: Property
) -> None:
    asyncio.run(drop(emptied_postgres))
    figures = kill_again_and_again(emptied_postgres, tmp_path / "log", lives(6, seed=2))
    record_property("explored", f"postgres: {figures}")
