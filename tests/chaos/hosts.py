"""Hosts as processes: each in its namespace, all with one log, and none outlives the test."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self, TypeVar

import msgspec

from perdure.core.errors import StoreError
from perdure.store.opening import open_store
from perdure.store.store import Store
from tests.chains import Journal, holders, read_journal
from tests.chaos.evidence import Line, lines_of
from tests.chaos.host import LINE, Order
from tests.paths import ROOT

PATIENCE_S = 120.0

T = TypeVar("T")


class Place(NamedTuple):
    """Where a host runs: how it reaches the store, and what its command begins with."""

    url: str
    prefix: tuple[str, ...] = ()


class Hosts:
    """A context manager. `url` is how this process reaches the store."""

    def __init__(
        self,
        url: str,
        places: Sequence[Place],
        folder: Path,
        *,
        runs: int,
        pace_s: float,
        has_hints: bool = True,
    ) -> None:
        self._url = url
        self._places = places
        self._folder = folder
        self._runs = runs
        self._pace_s = pace_s
        self._has_hints = has_hints
        self._log = folder / "log"
        self._log.touch()
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        # The hosts' input, which ends when this process does, whatever ends it.
        self._lifeline = os.pipe()
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        for number in range(len(self._places)):
            self.spawn(number)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for host in self._processes.values():
            host.kill()
            host.wait()
        for end in self._lifeline:
            os.close(end)
        self._runner.close()

    def spawn(self, number: int) -> None:
        place, count = self._places[number], len(self._places)
        load = self._runs, count, number, self._pace_s, self._has_hints
        order = Order(place.url, str(self._log), *load)
        command = [sys.executable, "-m", "tests.chaos.host", msgspec.json.encode(order).decode()]
        with (self._folder / f"said-{number}").open("ab") as said:
            self._processes[number] = subprocess.Popen(
                [*place.prefix, *command],
                cwd=ROOT,
                stdin=self._lifeline[0],
                stdout=said,
                stderr=said,
            )

    def send(self, number: int, sent: signal.Signals) -> None:
        self._processes[number].send_signal(sent)

    def bury(self, number: int) -> None:
        """It was killed, and is gone when this returns."""
        assert self._processes.pop(number).wait() == -signal.SIGKILL

    def pid(self, number: int) -> int:
        return self._processes[number].pid

    def lines(self) -> list[Line]:
        """All that was logged so far. The last line may be seen in part while it is written."""
        logged = self._log.read_bytes()
        return lines_of(logged[: len(logged) - len(logged) % LINE])

    def owned(self, number: int) -> frozenset[int]:
        """The runs of that host, by their keys."""
        pid = str(self.pid(number))

        async def find(store: Store) -> frozenset[int]:
            owners = [owner for owner in await holders(store) if owner.split("_")[4] == pid]
            pages = [await store.open_runs(owner, limit=10_000) for owner in owners]
            return frozenset(int(run.key or "") for page in pages for run in page)

        return self.ask(find)

    def is_all_done(self) -> bool:
        begun = {line.run for line in self.lines()}
        return len(begun) == self._runs and not self.ask(lambda store: store.open_ids(None, 1))

    def journal(self) -> Journal:
        return self._runner.run(_insist(lambda: read_journal(self._url)))

    def ask(self, question: Callable[[Store], Awaitable[T]]) -> T:
        """Ask the store, however often it takes."""

        async def once() -> T:
            store = await open_store(self._url)
            try:
                return await question(store)
            finally:
                await store.close()

        return self._runner.run(_insist(once))

    def wait_until(self, what: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not what():
            self.check()
            assert time.monotonic() < deadline, self._state()
            time.sleep(0.05)

    def check(self) -> None:
        """None ended by itself."""
        for number, host in self._processes.items():
            code = host.poll()
            assert code is None, f"exit code {code}: {self._said(number)}"

    def drain(self) -> None:
        """Let all of them stop in good order."""
        for host in self._processes.values():
            host.terminate()
        for number, host in self._processes.items():
            code = host.wait(PATIENCE_S)
            # One that was started just now may not know the signal yet; it has nothing to drain.
            assert code in (0, -signal.SIGTERM), f"exit code {code}: {self._said(number)}"

    def _state(self) -> str:
        """The state of the store and the hosts' logs, to explain a timeout."""
        said = [f"host {self.pid(number)}: {self._said(number)}" for number in self._processes]
        return "\n".join([f"{len(self.lines())} steps were begun", *self.ask(_open), *said])

    def _said(self, number: int) -> str:
        return (self._folder / f"said-{number}").read_text()[-4000:]


async def _open(store: Store) -> list[str]:
    """Some of the runs that are open, with the ends of their journals."""
    loaded = await store.load(await store.open_ids(None, 10))
    return [
        f"run {run.run_id} of {run.owner}, {run.status}: {[entry.body for entry in entries[-3:]]}"
        for run, entries in loaded
    ]


async def _insist(do: Callable[[], Awaitable[T]]) -> T:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return await do()
            except StoreError:
                await asyncio.sleep(0.05)
