"""Real hosts on one store: a host or the database is killed or paused; runs resume, and each step completes once."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import apsw
import pytest

from perdure import Engine
from perdure.core.journal import events as e
from perdure.store.inspection import audit_store, verify_store
from perdure.store.opening import open_store
from tests.client.cluster.peer import LINE, SETTINGS, STEPS, called, meet, total_of
from tests.paths import ROOT
from tests.postgres_server import PostgresServer

PATIENCE_S = 60
RUNS = 20

Property = Callable[[str, object], None]


class Line(NamedTuple):
    """An attempt began, on a host."""

    host: str
    run: int
    step: int
    attempt: int

    @property
    def is_queued(self) -> bool:
        return self.step % 3 == 2


class Peer:
    """A started `tests.client.cluster.peer`."""

    def __init__(self, name: str, url: str, log: Path, machine: str | None = None) -> None:
        self._log = log
        self._own_log = log.with_name(f"{log.name}.{name}")
        command = [sys.executable, "-m", "tests.client.cluster.peer", name, url, str(log)]
        self._process = subprocess.Popen(
            [*command, *([] if machine is None else [machine])],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.name = name
        assert self.hear() == "ready"

    def tell(self, command: str, first: int, count: int) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command} {first} {count}\n")
        self._process.stdin.flush()

    def hear(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def ask(self, command: str, first: int, count: int) -> str:
        self.tell(command, first, count)
        return self.hear()

    def send(self, number: signal.Signals) -> None:
        os.kill(self._process.pid, number)

    def lines(self) -> list[Line]:
        """The lines that its own attempts have logged."""
        return [line for line in lines_of(self._log) if line.host == self.name]

    def own_steps(self) -> list[Line]:
        """The lines of runs that it owned then; the others are from a queue."""
        return [line for line in self.lines() if not line.is_queued]

    def said(self) -> str:
        """Its log output."""
        return self._own_log.read_text()

    def close(self) -> int:
        """Let it end by itself."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._process.wait(PATIENCE_S)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def lines_of(log: Path) -> list[Line]:
    logged = log.read_bytes()
    assert len(logged) % LINE == 0
    return [
        Line(host, int(run), int(step), int(attempt))
        for host, run, step, attempt in (line.split() for line in logged.decode().splitlines())
    ]


@contextmanager
def peers(url: str, log: Path, *names: str, machine: str | None = None) -> Iterator[list[Peer]]:
    """Hosts of these names; the first one is on that machine, if one is given."""
    log.touch()
    with ExitStack() as stack:
        started = []
        for number, name in enumerate(names):
            peer = Peer(name, url, log, machine if number == 0 else None)
            stack.callback(peer.kill)
            started.append(peer)
        yield started


def wait_for(what: Callable[[], bool]) -> float:
    """Wait until it holds; returns the monotonic time."""
    deadline = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return time.monotonic()


async def assert_each_step_completed_once(url: str, runs: int) -> None:
    """The books are sound, and no host is left in them."""
    store = await open_store(url)
    try:
        for report in (await audit_store(store), await verify_store(store)):
            assert report.findings == []
            assert report.runs == runs
        async for books in store.books():
            steps = Counter(
                entry.event.promise_id
                for entry in books.entries
                if isinstance(entry.event, e.InvokeCompleted)
            )
            assert list(steps.values()) == [1] * STEPS
            assert isinstance(books.entries[-1].event, e.ExecutionCompleted)
    finally:
        await store.close()


def assert_well(url: str, log: Path, runs: int) -> None:
    asyncio.run(assert_each_step_completed_once(url, runs))
    begun = [(line.run, line.step, line.attempt) for line in lines_of(log) if not line.is_queued]
    assert len(set(begun)) == len(begun), "an attempt began twice"


def pause(peer: Peer, url: str) -> None:
    """Not while it holds the one write lock of a SQLite file, which would block every host."""
    peer.send(signal.SIGSTOP)
    while url.startswith("sqlite") and is_locked(url.removeprefix("sqlite:///")):
        peer.send(signal.SIGCONT)
        time.sleep(0.01)
        peer.send(signal.SIGSTOP)


def is_locked(path: str) -> bool:
    """Whether the file stays locked for longer than any commit of a host that is not paused."""
    connection = apsw.Connection(path)
    try:
        connection.set_busy_timeout(1000)
        connection.execute("BEGIN IMMEDIATE; ROLLBACK")
    except apsw.BusyError:
        return True
    finally:
        connection.close()
    return False


def under_way(peer: Peer) -> Callable[[], bool]:
    """Each of its runs has begun, and none is over."""
    return lambda: len({line.run for line in peer.lines()}) == RUNS


@pytest.mark.parametrize("machine", [None, "elsewhere"], ids=["here", "elsewhere"])
def test_runs_of_a_killed_host_are_taken_over(
    shared_url: str, tmp_path: Path, machine: str | None, record_property: Property
) -> None:
    log = tmp_path / "log"
    with peers(shared_url, log, "a", "b", machine=machine) as (victim, heir):
        assert victim.ask("start", 0, RUNS) == "started"
        wait_for(under_way(victim))
        victim.send(signal.SIGKILL)
        killed = time.monotonic()
        resumed = wait_for(lambda: bool(heir.own_steps()))
        assert heir.ask("await", 0, RUNS) == "ended well"
        done = time.monotonic()
        assert heir.close() == 0
    assert_well(shared_url, log, RUNS)
    place = "on the same machine" if machine is None else "of which only its heartbeats are known"
    record_property(
        "explored",
        f"{shared_url.partition(':')[0]}: a host {place} was killed: its first step went on after "
        f"{resumed - killed:.2f} s, its {RUNS} runs were done after {done - killed:.2f} s "
        f"(heartbeat {SETTINGS.heartbeat:g} s, stale after {SETTINGS.stale_after:g} s)",
    )
    assert (resumed - killed > SETTINGS.stale_after * 0.9) is (machine is not None)


def test_paused_host_is_fenced_drops_its_runs_and_continues(
    shared_url: str, tmp_path: Path, record_property: Property
) -> None:
    log = tmp_path / "log"
    with peers(shared_url, log, "a", "b") as (paused, heir):
        assert paused.ask("start", 0, RUNS) == "started"
        wait_for(under_way(paused))
        pause(paused, shared_url)
        stopped = time.monotonic()
        resumed = wait_for(lambda: bool(heir.own_steps()))
        assert heir.ask("await", 0, RUNS) == "ended well"
        paused.send(signal.SIGCONT)
        wait_for(lambda: "was considered dead" in paused.said())
        assert paused.ask("await", 0, RUNS) == "ended well"
        again = len(paused.lines())
        assert paused.ask("await", RUNS, RUNS) == "ended well"
        assert len(paused.lines()) > again
        assert (paused.close(), heir.close()) == (0, 0)
        assert "ERROR" not in paused.said() + heir.said()
    assert_well(shared_url, log, 2 * RUNS)
    record_property(
        "explored",
        f"{shared_url.partition(':')[0]}: a host was paused: its first step went on elsewhere after "
        f"{resumed - stopped:.2f} s, and it was fenced when it came back",
    )


@pytest.mark.postgres
@pytest.mark.parametrize("immediate", [True, False], ids=["crash", "restart"])
def test_hosts_survive_their_database(
    private_postgres: PostgresServer, tmp_path: Path, immediate: bool
) -> None:
    """Down for longer than a host may be silent: no host is considered dead, and nothing is lost or fails."""
    log, url = tmp_path / "log", private_postgres.url()
    with peers(url, log, "a", "b") as (first, second):
        assert first.ask("start", 0, RUNS) == "started"
        second.tell("await", RUNS, RUNS)
        wait_for(under_way(first))
        wait_for(lambda: len(lines_of(log)) > RUNS)
        private_postgres.stop(immediate=immediate)
        # Asked for while there is no database, they wait for it.
        first.tell("await", 2 * RUNS, RUNS)
        time.sleep(SETTINGS.stale_after + 0.5)
        quiet = len(lines_of(log))
        time.sleep(0.3)
        assert len(lines_of(log)) == quiet, (
            "an attempt began while no peer could know that its host lives"
        )
        private_postgres.start()
        assert (first.hear(), second.hear()) == ("ended well", "ended well")
        assert first.ask("await", 0, RUNS) == "ended well"
        assert (first.close(), second.close()) == (0, 0)
        assert "considered dead" not in first.said() + second.said()
        assert "ERROR" not in first.said() + second.said()
    assert_well(url, log, 3 * RUNS)


async def _send_and_await(url: str, numbers: range, kill: Callable[[], None]) -> list[int]:
    """Start, signal and await runs from an engine that executes nothing, while their host is killed."""
    async with Engine(url, settings=SETTINGS, hosts=False) as front:
        keys = [str(number) for number in numbers]
        runs = await front.start_many([meet(number) for number in numbers], keys=keys)
        half = len(runs) // 2
        for number, run in zip(numbers[:half], runs, strict=False):
            await run.signal(called, number)
        waiting = [asyncio.ensure_future(run.result(PATIENCE_S)) for run in runs]
        await asyncio.to_thread(kill)
        for number, run in zip(numbers[half:], runs[half:], strict=True):
            await run.signal(called, number)
        again = await front.start_many([meet(number) for number in numbers], keys=keys)
        assert [run.run_id for run in again] == [run.run_id for run in runs]
        return await asyncio.gather(*waiting)


@pytest.mark.parametrize("is_replaced", [True, False], ids=["by a new host", "by another host"])
def test_an_engine_that_only_sends_gets_its_results_though_their_host_is_killed(
    shared_url: str, tmp_path: Path, is_replaced: bool
) -> None:
    log, numbers = tmp_path / "log", range(RUNS)
    with ExitStack() as stack:
        started = stack.enter_context(
            peers(shared_url, log, *(("a",) if is_replaced else ("a", "b")))
        )

        def busy() -> list[Peer]:
            return [peer for peer in started if len(peer.own_steps()) > 2]

        def kill() -> None:
            wait_for(lambda: bool(busy()))
            busy()[0].kill()
            if is_replaced:
                stack.enter_context(peers(shared_url, log, "b"))

        totals = asyncio.run(_send_and_await(shared_url, numbers, kill))
        assert totals == [total_of(number) for number in numbers]
    assert_well(shared_url, log, RUNS)
