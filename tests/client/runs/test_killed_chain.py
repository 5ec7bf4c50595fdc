"""A chain whose process is killed again and again: no signal is lost or received twice."""

import asyncio
import random
import subprocess
import sys

from perdure.core.journal.state import Status
from perdure.store.opening import open_store
from perdure.testing import assert_sound
from tests.client.runs.killed_chain import PER_RUN
from tests.paths import ROOT

COUNT = 60
KILLS = 4


def born(url: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.client.runs.killed_chain", url, str(COUNT)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


async def entries_in(url: str) -> int:
    store = await open_store(url)
    try:
        return sum([len(books.entries) async for books in store.books()])
    finally:
        await store.close()


async def test_a_killed_process_leaves_a_whole_chain(shared_url: str) -> None:
    chance = random.Random(7)
    await entries_in(shared_url)
    for _ in range(KILLS):
        before = await entries_in(shared_url)
        process = born(shared_url)
        async with asyncio.timeout(60):
            while process.poll() is None and await entries_in(shared_url) < before + 40:  # noqa: ASYNC110 - no notification
                await asyncio.sleep(0.01)
        await asyncio.sleep(chance.random() / 20)
        process.kill()
        process.communicate()
    last = born(shared_url)
    heard, _ = await asyncio.to_thread(last.communicate, timeout=60)
    assert heard.split() == [str(value) for value in range(COUNT)]
    store = await open_store(shared_url)
    try:
        await assert_sound(store)
        runs = sorted([books.run_id async for books in store.books()])
        chain = await store.chain(runs[0])
        assert [run.run_id for run in chain] == runs
        assert len(runs) == COUNT // PER_RUN
        assert [run.status for run in chain] == [Status.CONTINUED] * (len(runs) - 1) + [
            Status.COMPLETED
        ]
    finally:
        await store.close()
