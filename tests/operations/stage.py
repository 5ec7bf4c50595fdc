"""Processes that take part in one operation, and what must hold when it is over."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from perdure.operations import Ledger, LedgerData, OperationState
from tests.operations.actor import SHORT

PATIENCE_S = 60


class Refused(Exception):
    """An actor answered with an error: its type, and its text."""


class Actor:
    """A process of its own, as the test sees it."""

    def __init__(
        self, name: str, pid: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.name = name
        self.pid = pid
        self.is_alive = True
        self._reader = reader
        self._writer = writer

    async def __call__(self, verb: str, *arguments: object) -> Any:
        """Let it do something, and wait for the outcome."""
        self.begin(verb, *arguments)
        async with asyncio.timeout(PATIENCE_S):
            answer = json.loads(await self._reader.readline())
        if "error" in answer:
            raise Refused(answer["error"], answer["text"])
        return answer["result"]

    def begin(self, verb: str, *arguments: object) -> None:
        self._writer.write(json.dumps([verb, *arguments]).encode() + b"\n")

    def stop(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    async def kill(self) -> None:
        """SIGKILL; returns when the process is gone."""
        if self.is_alive:
            os.kill(self.pid, signal.SIGKILL)
            await self.gone()

    async def gone(self) -> None:
        self.is_alive = False
        async with asyncio.timeout(PATIENCE_S):
            with suppress(ConnectionResetError):
                await self._reader.read()
        self._writer.close()

    async def go(self) -> None:
        """Leave in good order, and end."""
        await self("leave")
        self._writer.write_eof()
        await self.gone()


class Stage:
    """The place of the ledger, the actors, and what their callbacks wrote."""

    def __init__(self, door: str, place: dict[str, str], folder: Path) -> None:
        self.place = place
        self._door = door
        self.folder = folder
        (folder / "scratch").mkdir()
        (folder / "evidence").touch()
        self.actors: list[Actor] = []
        self.operation_id = ""

    async def actor(self, name: str) -> Actor:
        reader, writer = await asyncio.open_unix_connection(self._door)
        writer.write(json.dumps([name, self.place, str(self.folder)]).encode() + b"\n")
        pid = json.loads(await reader.readline())["result"]
        self.actors.append(Actor(name, pid, reader, writer))
        return self.actors[-1]

    async def crew(self, *names: str) -> list[Actor]:
        """The first creates the operation, the others join it in this order."""
        actors = [await self.actor(name) for name in names]
        self.operation_id = await actors[0]("create")
        for actor in actors[1:]:
            await actor("join", self.operation_id)
        return actors

    def outside(self) -> Ledger:
        """A ledger that takes no part."""
        return Ledger(**self.place, settings=SHORT)  # type: ignore[arg-type]

    def evidence(self) -> list[str]:
        return (self.folder / "evidence").read_text().splitlines()

    def open_gate(self, actor: Actor) -> None:
        (self.folder / f"open-{actor.name}").touch()

    def resources(self) -> set[str]:
        return {path.name for path in (self.folder / "scratch").iterdir()}

    async def until(self, test: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not test():  # noqa: ASYNC110 - there is no event to wait for
                await asyncio.sleep(0.02)

    async def seen(self, test: Callable[[LedgerData], bool]) -> LedgerData:
        """Wait until the ledger satisfies the condition."""
        async with self.outside() as ledger, asyncio.timeout(PATIENCE_S):
            while True:
                data = await ledger.read_operation(self.operation_id)
                if test(data):
                    return data
                await asyncio.sleep(0.02)

    async def ended(self, state: OperationState) -> LedgerData:
        """Wait until the operation is in the backups and all participants have exited; check the common guarantees."""
        async with self.outside() as ledger:
            async with asyncio.timeout(PATIENCE_S):
                while await ledger.operation_ids():  # noqa: ASYNC110 - there is no event to wait for
                    await asyncio.sleep(0.02)
            for actor in self.actors:
                if actor.is_alive:
                    await actor.go()
            assert await ledger.operation_ids() == []
            assert await ledger.operation_ids(backups=True) == [self.operation_id]
            data = await ledger.read_operation(self.operation_id)
        assert data.operation_state is state
        assert data.stack == ()
        assert self.resources() == set()
        if state is OperationState.FAILED:
            assert data.detection_timestamp is not None
            assert data.removal_timestamp is not None
            assert data.start_time <= data.detection_timestamp <= data.removal_timestamp
        self._no_lock_is_left()
        return data

    def _no_lock_is_left(self) -> None:
        """Neither lock nor draft in the directory; a store takes the next change at once (see `events`)."""
        if "base_path" in self.place:
            assert [path.name for path in Path(self.place["base_path"]).iterdir()] == ["backup"]

    def cleaned(self) -> Counter[str]:
        """How often the clean-up of each call was begun, and ended: both must be the same."""
        begun, ended = self._noted("begins"), self._noted("cleaned")
        assert begun == ended
        return ended

    def notified(self) -> Counter[str]:
        """How often each call ran `on_operation_failed`."""
        return self._noted("told")

    def _noted(self, what: str) -> Counter[str]:
        lines = (line.split(maxsplit=2) for line in self.evidence())
        return Counter(f"{name}/{label}" for name, verb, label in lines if verb == what)

    async def events(self) -> list[str]:
        """The log, in order, as `event participant`. The place must accept another operation at once."""
        async with self.outside() as ledger:
            async with asyncio.timeout(60):
                another = await ledger.create_operation(participant_id="another")
                await another.complete()
            lines = await ledger.read_log(self.operation_id)
        words = [line.split() for line in lines]
        return [f"{w[2]} {w[3].removeprefix('participant=')}" for w in words if w[2].isupper()]


@contextmanager
def door() -> Iterator[str]:
    """The socket where actors are to be had."""
    with TemporaryDirectory() as folder:
        path = f"{folder}/door"
        process = subprocess.Popen([sys.executable, "-m", "tests.operations.actor", path])
        try:
            end = time.monotonic() + PATIENCE_S
            while not Path(path).exists():
                assert time.monotonic() < end
                assert process.poll() is None
                time.sleep(0.02)
            yield path
        finally:
            process.kill()
            process.wait()
