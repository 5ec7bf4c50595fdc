"""Processes are killed while they publish to a real Redis: no event is lost, first occurrences are in order."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from perdure import Engine
from tests.brokers import Broker, running
from tests.client.engines import assert_sound
from tests.paths import ROOT

RUNS = 12


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        address: str = request.getfixturevalue("emptied_postgres")
        return address
    return f"sqlite:///{tmp_path}/shop.db"


def shop(url: str, broker: Broker) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.host.bus.shop", url, broker.url, str(RUNS)]
    return subprocess.Popen(command, cwd=ROOT)


async def grown(client: Redis, process: subprocess.Popen[bytes], by: int) -> None:
    """Wait until the stream has grown, or the process has ended."""
    before = await client.xlen("events")
    while await client.xlen("events") < before + by and process.poll() is None:  # noqa: ASYNC110 - another process writes
        await asyncio.sleep(0.01)


async def test_kill_9_while_publishing_loses_no_event(url: str) -> None:
    with running("redis-server") as broker:
        async with Redis.from_url(broker.url) as client:
            for kills in (1, 2):
                processes = [shop(url, broker) for _ in range(kills)]
                await grown(client, processes[0], 60)
                for process in processes:
                    process.kill()
                    process.wait()
            last = shop(url, broker)
            assert await asyncio.to_thread(last.wait, 120) == 0
            rows: Any = await client.xrange("events")
    seqs: dict[str, list[int]] = {}
    for _, fields in rows:
        event = json.loads(fields[b"event"])
        seqs.setdefault(event["subject"], []).append(int(event["sequence"]))
    assert len(seqs) == RUNS
    async with Engine(url) as engine:
        for run_id, found in seqs.items():
            history = [event.seq async for event in engine.handle(run_id).history()]
            assert list(dict.fromkeys(found)) == history
        await assert_sound(engine)
