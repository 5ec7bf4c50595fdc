"""Hosts as processes, and what is done to them: started, paused, killed, started again, and watched to the end."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from heapq import heappop, heappush
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self, TypeVar

import msgspec

from perdure.core.errors import StoreError
from perdure.store.opening import open_store
from perdure.store.store import Store
from tests.chains import read_journal
from tests.chaos.evidence import Kill, Snapshot, lines_of
from tests.chaos.faults import Fault, Kind
from tests.chaos.host import Order
from tests.postgres_server import PostgresServer

ROOT = Path(__file__).parent.parent.parent
PATIENCE_S = 120.0

T = TypeVar("T")


class Plan(NamedTuple):
    """How much there is to do, and how it is disturbed."""

    runs: int
    pace_s: float
    faults: Sequence[Fault]
    hosts: int = 3


class Director:
    """A context manager: no process outlives it. `server` is what a server restart restarts."""

    def __init__(self, url: str, folder: Path, plan: Plan, server: PostgresServer | None) -> None:
        self._url = url
        self._folder = folder
        self._plan = plan
        self._server = server
        self._log = folder / "log"
        self._log.touch()
        self._hosts: list[subprocess.Popen[bytes]] = []
        # The hosts' input, which ends when the director does, whatever ends it.
        self._lifeline = os.pipe()
        self._runner = asyncio.Runner()
        self.kills: list[Kill] = []
        self.snapshots: list[Snapshot] = []
        self.lasted_s = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for host in self._hosts:
            host.kill()
            host.wait()
        for end in self._lifeline:
            os.close(end)
        self._runner.close()

    def logged(self) -> bytes:
        return self._log.read_bytes()

    def direct(self) -> None:
        """Start everything, let it go wrong as planned, and wait until all is done and every host has drained."""
        began = time.monotonic()
        self._hosts = [self.spawn(number) for number in range(self._plan.hosts)]
        self.wait_until(lambda: len({line.pid for line in lines_of(self.logged())}) > 1)
        self._disturb()
        self.wait_until(self._is_all_done)
        self.lasted_s = time.monotonic() - began
        self._drain()

    def spawn(self, number: int) -> subprocess.Popen[bytes]:
        plan = self._plan
        order = Order(self._url, str(self._log), plan.runs, plan.hosts, number, plan.pace_s)
        with (self._folder / f"said-{number}").open("ab") as said:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.host", msgspec.json.encode(order).decode()],
                cwd=ROOT,
                stdin=self._lifeline[0],
                stdout=said,
                stderr=said,
            )

    def _disturb(self) -> None:
        began = time.monotonic()
        ends: list[tuple[float, Fault]] = []
        faults = list(self._plan.faults)
        while faults or ends:
            self._check()
            if not faults or (ends and ends[0][0] <= faults[0].at_s):
                at_s, fault = heappop(ends)
                _sleep_until(began + at_s)
                self._end(fault)
            else:
                fault = faults.pop(0)
                _sleep_until(began + fault.at_s)
                self._begin(fault)
                heappush(ends, (fault.at_s + fault.for_s, fault))

    def _begin(self, fault: Fault) -> None:
        host = self._hosts[fault.host]
        if fault.kind is Kind.RESTART:
            assert self._server is not None
            self._server.restart()
            return
        host.send_signal(signal.SIGSTOP)
        if fault.kind is Kind.KILL:
            # It owns what it owns while it stands still.
            runs = self.ask(lambda store: _owned(store, host.pid))
            host.kill()
            self.kills.append(Kill(time.monotonic_ns(), host.pid, runs))
            assert host.wait() == -signal.SIGKILL
            completed = self._runner.run(_insist(lambda: read_journal(self._url))).completed
            self.snapshots.append(Snapshot(time.monotonic_ns(), completed))

    def _end(self, fault: Fault) -> None:
        if fault.kind is Kind.PAUSE:
            self._hosts[fault.host].send_signal(signal.SIGCONT)
        elif fault.kind is Kind.KILL:
            self._hosts[fault.host] = self.spawn(fault.host)

    def _is_all_done(self) -> bool:
        begun = {line.run for line in lines_of(self.logged())}
        return len(begun) == self._plan.runs and not self.ask(lambda store: store.open_ids(None, 1))

    def _drain(self) -> None:
        for host in self._hosts:
            host.send_signal(signal.SIGTERM)
        for number, host in enumerate(self._hosts):
            assert host.wait(PATIENCE_S) == 0, self._said(number)

    def _check(self) -> None:
        for number, host in enumerate(self._hosts):
            assert host.poll() in (None, -signal.SIGKILL), self._said(number)

    def _said(self, number: int) -> str:
        return (self._folder / f"said-{number}").read_text()[-4000:]

    def wait_until(self, what: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not what():
            self._check()
            assert time.monotonic() < deadline, "\n".join(map(self._said, range(len(self._hosts))))
            time.sleep(0.05)

    def ask(self, question: Callable[[Store], Awaitable[T]]) -> T:
        """Ask the store, however often it takes."""

        async def once() -> T:
            store = await open_store(self._url)
            try:
                return await question(store)
            finally:
                await store.close()

        return self._runner.run(_insist(once))


async def _owned(store: Store, pid: int) -> frozenset[int]:
    """The runs of the hosts of that process, by their keys."""
    owners = [owner for owner in await store.owners() if owner.split("_")[4] == str(pid)]
    pages = [await store.open_runs(owner, limit=10_000) for owner in owners]
    return frozenset(int(run.key or "") for page in pages for run in page)


async def _insist(do: Callable[[], Awaitable[T]]) -> T:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return await do()
            except StoreError:
                await asyncio.sleep(0.05)


def _sleep_until(at_s: float) -> None:
    time.sleep(max(0.0, at_s - time.monotonic()))
