"""A streaming process is killed again and again; a reader in another process gets each valid chunk once."""

import asyncio
import random
import subprocess
import sys
from collections.abc import Callable

from perdure import Abandoned, Chunk, Engine
from tests.client.engines import opened
from tests.paths import ROOT

STEPS, CHUNKS, KILLS = 8, 40, 6

SPOKEN = [
    word
    for step in range(STEPS)
    for word in (*(f"{step}.{number}" for number in range(CHUNKS)), f"{step} done")
]


class Speaker:
    """The process, started again after each kill."""

    def __init__(self, url: str) -> None:
        self._command = [
            sys.executable,
            "-m",
            "tests.client.tasks.streamer",
            url,
            str(STEPS),
            str(CHUNKS),
        ]
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> str:
        """Returns the id of its run."""
        self._process = await asyncio.create_subprocess_exec(
            *self._command, cwd=ROOT, stdout=subprocess.PIPE
        )
        assert self._process.stdout is not None
        return (await self._process.stdout.readline()).decode().strip()

    async def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def restart(self) -> None:
        await self.kill()
        await self.start()


class Listener:
    """What one reader received, and what it has kept."""

    def __init__(self) -> None:
        self.heard: dict[int, str] = {}
        self.shown: dict[int, str] = {}
        self.taken_back = 0

    def hear(self, item: Chunk[str] | Abandoned) -> None:
        if isinstance(item, Chunk):
            assert item.offset == len(self.heard)
            self.heard[item.offset] = item.value
            if item.state != "abandoned":
                self.shown[item.offset] = item.value
        else:
            self.taken_back += 1
            for offset in item.offsets:
                del self.shown[offset]


async def listen(engine: Engine, speaker: Speaker) -> Listener:
    """Read to the end, and kill the streaming process now and then."""
    listener, chance = Listener(), random.Random(1)
    run = engine.handle(await speaker.start())
    kills, due = KILLS, chance.randrange(5, 30)
    async for item in run.stream("words", of=str):
        listener.hear(item)
        if kills and len(listener.heard) >= due and isinstance(item, Chunk):
            kills -= 1
            due = len(listener.heard) + chance.randrange(20, 60)
            await speaker.restart()
    assert not kills
    final = [chunk async for chunk in run.stream("words", of=str, completed_only=True)]
    assert {chunk.offset: chunk.value for chunk in final} == listener.shown
    return listener


async def test_reader_of_a_killed_process_gets_each_valid_chunk_once(
    shared_url: str, record_property: Callable[[str, object], None]
) -> None:
    speaker = Speaker(shared_url)
    try:
        async with opened(shared_url) as engine, asyncio.timeout(90):
            listener = await listen(engine, speaker)
    finally:
        await speaker.kill()
    assert list(listener.shown.values()) == SPOKEN
    void = len(listener.heard) - len(listener.shown)
    assert listener.taken_back
    record_property(
        "explored",
        f"streams, {KILLS} kills -9: {len(listener.heard)} chunks read live, {void} of them abandoned, "
        f"{len(SPOKEN)} left",
    )
