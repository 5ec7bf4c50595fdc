"""`perdure worker` with real processes: crashes, signals, and the death of the supervisor."""

import asyncio
import os
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from perdure import Engine
from perdure.cli.worker.supervision import NOT_DRAINED, UNUSABLE
from perdure.core.journal import events as e
from perdure.store.inspection import audit, verify
from perdure.store.opening import open_store
from tests.chains import holders
from tests.cli import worker_app
from tests.cli.test_demo import COMMAND
from tests.client.engines import AT_ONCE

ROOT = Path(__file__).parent.parent.parent
PATIENCE_S = 30.0
POSTGRES = pytest.param("postgres", marks=pytest.mark.postgres)


class Workers:
    """The command, what it says, and what its tasks logged."""

    def __init__(self, url: str, folder: Path, *arguments: str) -> None:
        self._said = folder / "said"
        self._log = folder / "log"
        self._log.touch()
        environment = dict(os.environ, WORKER_URL=url, WORKER_LOG=str(self._log))
        with self._said.open("wb") as said:
            self.process = subprocess.Popen(
                [*COMMAND, "worker", *arguments],
                cwd=ROOT,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=said,
            )

    def said(self) -> str:
        return self._said.read_text()

    def lines(self) -> list[tuple[int, int, int]]:
        """Run, step and process of each body."""
        lines = self._log.read_text().splitlines()
        return [(int(run), int(step), int(pid)) for run, step, pid in map(str.split, lines)]

    def ready(self, number: int) -> list[int]:
        """The processes that were ready as that worker, one after the other."""
        found = re.findall(rf"worker {number} \(pid (\d+)\): ready", self.said())
        return [int(pid) for pid in found]

    def wait_until(self, what: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not what():
            assert time.monotonic() < deadline, self.said()
            assert self.process.poll() is None, self.said()
            time.sleep(0.02)

    def wait_ready(self, *numbers: int, times: int = 1) -> None:
        self.wait_until(lambda: all(len(self.ready(each)) >= times for each in numbers))

    def end(self) -> int:
        """Wait until the command is gone, and all of its workers: nobody has its output open any more."""
        assert self.process.stdout is not None
        os.set_blocking(self.process.stdout.fileno(), False)
        deadline = time.monotonic() + PATIENCE_S
        while self.process.stdout.read() != b"":
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.02)
        return self.process.wait(PATIENCE_S)


@contextmanager
def workers(url: str, folder: Path, *arguments: str) -> Iterator[Workers]:
    started = Workers(url, folder, *arguments)
    try:
        yield started
    finally:
        # Its workers see that it is gone.
        started.process.kill()
        started.process.communicate()


@pytest.fixture(params=["sqlite", POSTGRES])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        found: str = request.getfixturevalue("fresh_postgres")
        return found
    return f"sqlite:///{tmp_path}/worker.db"


@pytest.fixture
def sqlite(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/worker.db"


def start(url: str, runs: int, steps: int, seconds: float) -> None:
    """Start runs and leave them to the workers."""

    async def begin() -> None:
        async with Engine(url, settings=AT_ONCE) as engine:
            calls = [worker_app.stepping(run, steps, seconds) for run in range(runs)]
            await engine.start_many(calls, keys=map(str, range(runs)))

    asyncio.run(begin())


def closed(url: str) -> dict[int, bytes | None]:
    """The results of the runs that are over, by their keys."""

    async def read() -> dict[int, bytes | None]:
        store, results = await open_store(url), {}
        try:
            async for books in store.books():
                first, last = books.entries[0].event, books.entries[-1].event
                assert isinstance(first, e.ExecutionStarted)
                if isinstance(last, e.ExecutionCompleted):
                    results[int(first.idempotency_key or "")] = last.payload
        finally:
            await store.close()
        return results

    return asyncio.run(read())


def doubts(url: str) -> int:
    """How many entries tell of steps in doubt. The books must be sound, and belong to nobody."""

    async def read() -> int:
        store, found = await open_store(url), 0
        try:
            for report in (await audit(store), await verify(store)):
                assert report.is_clean, str(report)
            assert await holders(store) == frozenset()
            async for books in store.books():
                found += sum(isinstance(entry.event, e.Posted) for entry in books.entries)
        finally:
            await store.close()
        return found

    return asyncio.run(read())


def test_a_killed_worker_is_started_again_and_its_runs_finish(url: str, tmp_path: Path) -> None:
    start(url, runs=8, steps=worker_app.STEPS, seconds=0.1)
    target = "tests.cli.worker_app:make_engine"
    options = ("--processes", "2", "--queues", "there", "--concurrency", "50")
    with workers(url, tmp_path, target, *options) as command:
        command.wait_ready(1, 2)
        (victim,) = command.ready(1)
        command.wait_until(lambda: any(pid == victim for _, _, pid in command.lines()))
        os.kill(victim, signal.SIGKILL)
        command.wait_ready(1, times=2)
        assert command.ready(1)[1] != victim
        command.wait_until(lambda: len(closed(url)) == 8)
        command.process.terminate()
        assert command.end() == 0
        assert f"worker 1 (pid {victim}): killed by SIGKILL, starts again in" in command.said()
        assert command.said().count(": stopped\n") == 2
        bodies = Counter((run, step) for run, step, _ in command.lines())
    total = b"%d" % sum(range(worker_app.STEPS))
    assert closed(url) == dict.fromkeys(range(8), total)
    assert set(bodies) == {(run, step) for run in range(8) for step in range(worker_app.STEPS)}
    assert sum(bodies.values()) - len(bodies) <= doubts(url)


def test_a_stop_lets_running_tasks_end_and_hands_the_rest_back(url: str, tmp_path: Path) -> None:
    with workers(
        url, tmp_path, "tests.cli.worker_app:engine", "--processes", "2", "--queues", "there"
    ) as command:
        command.wait_ready(1, 2)
        start(url, runs=10, steps=worker_app.STEPS, seconds=0.4)
        command.wait_until(lambda: len(command.lines()) >= 12)
        command.process.terminate()
        assert command.end() == 0
        bodies = Counter((run, step) for run, step, _ in command.lines())
    assert "SIGTERM: stopping; once more kills" in command.said()
    assert closed(url) == {}
    # What had begun here has ended here: none of it is in doubt.
    assert doubts(url) == 0
    assert set(bodies.values()) == {1}


def test_a_second_signal_kills_and_the_exit_code_tells(sqlite: str, tmp_path: Path) -> None:
    start(sqlite, runs=1, steps=1, seconds=60)
    with workers(sqlite, tmp_path, "tests.cli.worker_app:engine", "--queues", "there") as command:
        command.wait_until(lambda: len(command.lines()) == 1)
        command.process.send_signal(signal.SIGINT)
        command.wait_until(lambda: "SIGINT: stopping" in command.said())
        time.sleep(0.2)
        assert command.process.poll() is None
        command.process.send_signal(signal.SIGINT)
        assert command.end() == NOT_DRAINED
        assert "killed by SIGKILL" in command.said()


def test_a_worker_that_is_told_twice_stops_at_once(sqlite: str, tmp_path: Path) -> None:
    start(sqlite, runs=1, steps=1, seconds=60)
    with workers(sqlite, tmp_path, "tests.cli.worker_app:engine", "--queues", "there") as command:
        command.wait_ready(1)  # it says so when its runs may have begun already
        command.wait_until(lambda: len(command.lines()) == 1)
        (pid,) = command.ready(1)
        os.kill(pid, signal.SIGTERM)
        time.sleep(0.2)
        os.kill(pid, signal.SIGTERM)
        said = f"(pid {pid}): ended with exit code 143, starts again"
        command.wait_until(lambda: said in command.said())


def test_workers_that_keep_crashing_are_left_alone_ever_longer(sqlite: str, tmp_path: Path) -> None:
    with workers(sqlite, tmp_path, "tests.cli.worker_app:crash", "--processes", "3") as command:
        command.wait_until(lambda: "starts again in 2 s" in command.said())
        waits = re.findall(r"killed by SIGKILL, starts again in ([\d.]+) s", command.said())
        assert waits == ["0.5", "1", "2"]
        # Nobody follows a first worker that never served.
        assert "worker 2" not in command.said()
        command.process.terminate()
        assert command.end() == 0


def test_workers_go_when_their_supervisor_is_killed(url: str, tmp_path: Path) -> None:
    start(url, runs=4, steps=worker_app.STEPS, seconds=0.3)
    with workers(
        url, tmp_path, "tests.cli.worker_app:engine", "--processes", "2", "--queues", "there"
    ) as command:
        command.wait_ready(1, 2)
        command.wait_until(lambda: len(command.lines()) >= 6)
        command.process.kill()
        assert command.end() == -signal.SIGKILL
    # They drained: what had begun has ended, and nobody owns anything.
    assert doubts(url) == 0


def test_a_hangup_replaces_the_workers_one_by_one(sqlite: str, tmp_path: Path) -> None:
    with workers(sqlite, tmp_path, "tests.cli.worker_app:engine", "--processes", "2") as command:
        command.wait_ready(1, 2)
        command.process.send_signal(signal.SIGHUP)
        command.wait_until(lambda: "the rolling restart is through" in command.said())
        ready = re.findall(r"worker (\d) \(pid \d+\): (ready|ended .*replaced)", command.said())
        assert [(int(n), word[:5]) for n, word in ready[2:]] == [
            *((1, "ended"), (1, "ready")),
            *((2, "ended"), (2, "ready")),
        ]
        command.process.terminate()
        assert command.end() == 0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("tests.cli.nowhere:engine",), "there is no module 'tests.cli.nowhere'"),
        (("tests.cli.worker_app:motor",), "it has tests.cli.worker_app:engine"),
        (("tests.cli.worker_app:fail",), "RuntimeError: no engine today"),
        (("tests.cli.worker_app:engine", "--processes", "0"), "--processes is 0: pass at least 1"),
        (("tests.cli.worker_app:engine", "--concurrency", "0"), "concurrency is 0"),
        (("tests.cli.worker_app:engine", "--queues", "a,,b"), "queue"),
    ],
)
def test_what_can_not_work_is_said_once_and_not_tried_again(
    sqlite: str, tmp_path: Path, arguments: tuple[str, ...], text: str
) -> None:
    with workers(sqlite, tmp_path, *arguments) as command:
        assert command.end() == UNUSABLE
        assert command.said().count(text) in (1, 2)
        assert command.said().count("started") <= 1


def test_a_database_of_somebody_else_is_not_tried_again(tmp_path: Path) -> None:
    (tmp_path / "theirs.db").write_bytes(b"not a database at all" * 100)
    with workers(f"sqlite:///{tmp_path}/theirs.db", tmp_path, "tests.cli.worker_app:engine") as it:
        assert it.end() == UNUSABLE
        assert "Traceback" not in it.said()


def test_a_store_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/later/worker.db"
    with workers(url, tmp_path, "tests.cli.worker_app:engine") as command:
        command.wait_until(lambda: "ended with exit code 1, starts again" in command.said())
        (tmp_path / "later").mkdir()
        command.wait_ready(1)
        command.process.terminate()
        assert command.end() == 0
