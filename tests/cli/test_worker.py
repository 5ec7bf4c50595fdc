"""`perdure worker` with real processes: crashes, signals, and the death of the supervisor."""

import asyncio
import json
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
from perdure.cli.worker.policy import BAD_CONFIG
from perdure.core.journal import events as e
from perdure.store.inspection import audit_store, verify_store
from perdure.store.opening import open_store
from tests.chains import holders
from tests.cli import worker_app
from tests.cli.test_demo import COMMAND
from tests.client.engines import AT_ONCE
from tests.paths import ROOT

PATIENCE_S = 60
POSTGRES = pytest.param("postgres", marks=pytest.mark.postgres)


class Workers:
    """The command, its output, and the lines of its tasks."""

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
        """Run, step and process of each attempt."""
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
        """Wait until the command and all its workers have exited: its output is closed."""
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
        # Its workers detect that it is gone.
        started.process.kill()
        started.process.communicate()


@pytest.fixture(params=["sqlite", POSTGRES])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        found: str = request.getfixturevalue("emptied_postgres")
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


def start_failing(url: str) -> None:
    """Start a run whose only task fails, on a queue that is not served here."""

    async def begin() -> None:
        async with Engine(url, settings=AT_ONCE) as engine:
            await engine.start(worker_app.failing())

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
    """The number of entries about steps in doubt. The books must be clean, and no run may have an owner."""

    async def read() -> int:
        store, found = await open_store(url), 0
        try:
            for report in (await audit_store(store), await verify_store(store)):
                assert report.is_clean, str(report)
            assert await holders(store) == frozenset()
            async for books in store.books():
                found += sum(isinstance(entry.event, e.Posted) for entry in books.entries)
        finally:
            await store.close()
        return found

    return asyncio.run(read())


def test_killed_worker_restarts_and_its_runs_finish(url: str, tmp_path: Path) -> None:
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
        assert f"worker 1 (pid {victim}): killed by SIGKILL, restarting in" in command.said()
        assert command.said().count(": stopped\n") == 2
        bodies = Counter((run, step) for run, step, _ in command.lines())
    total = b"%d" % sum(range(worker_app.STEPS))
    assert closed(url) == dict.fromkeys(range(8), total)
    assert set(bodies) == {(run, step) for run in range(8) for step in range(worker_app.STEPS)}
    assert sum(bodies.values()) - len(bodies) <= doubts(url)


def test_stop_waits_for_running_tasks_and_releases_runs(url: str, tmp_path: Path) -> None:
    with workers(
        url, tmp_path, "tests.cli.worker_app:engine", "--processes", "2", "--queues", "there"
    ) as command:
        command.wait_ready(1, 2)
        start(url, runs=10, steps=worker_app.STEPS, seconds=0.4)
        command.wait_until(lambda: len(command.lines()) >= 12)
        command.process.terminate()
        assert command.end() == 0
        bodies = Counter((run, step) for run, step, _ in command.lines())
    assert "SIGTERM: stopping, waiting for running tasks; send SIGTERM again" in command.said()
    assert re.search(r"stopping: waiting up to 20 s for \d+ tasks? \(worker_app", command.said())
    assert closed(url) == {}
    # Attempts that had begun here have ended here: no step is in doubt.
    assert doubts(url) == 0
    assert set(bodies.values()) == {1}


def test_second_signal_kills_and_sets_the_exit_code(sqlite: str, tmp_path: Path) -> None:
    start(sqlite, runs=1, steps=1, seconds=60)
    with workers(sqlite, tmp_path, "tests.cli.worker_app:engine", "--queues", "there") as command:
        command.wait_until(lambda: len(command.lines()) == 1)
        command.process.send_signal(signal.SIGINT)
        command.wait_until(lambda: "SIGINT: stopping" in command.said())
        time.sleep(0.2)
        assert command.process.poll() is None
        command.process.send_signal(signal.SIGINT)
        assert command.end() == 130
        assert "press Ctrl-C again to stop at once" in command.said()
        waits = "waiting up to 20 s for 1 task (worker_app.there of run r_"
        assert command.said().count(waits) == 1
        assert "killed by SIGKILL" in command.said()
        assert "Traceback" not in command.said()


def test_the_ready_line_names_store_queues_and_programs(url: str, tmp_path: Path) -> None:
    options = ("--queues", "there")
    with workers(url, tmp_path, "tests.cli.worker_app:engine", *options) as command:
        command.wait_ready(1)
        command.process.terminate()
        assert command.end() == 0
    (ready,) = [line for line in command.said().splitlines() if ": ready: " in line]
    place = url.partition("://")[0]
    assert f": ready: store {place}://" in ready
    assert "; queues: there; programs: " in ready
    assert "worker_app.failing, worker_app.stepping" in ready


def test_worker_logs_failures_and_task_log_lines(url: str, tmp_path: Path) -> None:
    start_failing(url)
    with workers(url, tmp_path, "tests.cli.worker_app:engine", "--queues", "there") as command:
        command.wait_until(lambda: "of 'worker_app.failing' failed" in command.said())
        command.process.terminate()
        assert command.end() == 0
    said = command.said()
    assert re.search(r"Z INFO perdure\.log: about to fail$", said, re.MULTILINE)
    assert re.search(r"WARNING perdure\.task: attempt 1 of task 'worker_app.fail_there' ", said)
    assert 'raise RuntimeError("no luck")' in said
    assert re.search(r"WARNING perdure\.run: run r_\w+ of 'worker_app.failing' failed", said)


def test_json_format_applies_to_every_line(sqlite: str, tmp_path: Path) -> None:
    start_failing(sqlite)
    options = ("--queues", "there", "--log-format", "json", "--log-level", "warning")
    with workers(sqlite, tmp_path, "tests.cli.worker_app:engine", *options) as command:
        command.wait_until(lambda: "of 'worker_app.failing' failed" in command.said())
        command.process.terminate()
        assert command.end() == 0
    lines = [json.loads(line) for line in command.said().splitlines()]
    own = [line for line in lines if line["logger"] == "perdure.worker"]
    assert any(line["message"].startswith("ready: store ") for line in own)
    others = [line for line in lines if line["logger"] != "perdure.worker"]
    assert {line["level"] for line in others} == {"warning"}
    (failed,) = [line for line in others if line["event"] == "attempt_failed"]
    assert (failed["task"], failed["step"], failed["attempt"]) == (
        "worker_app.fail_there",
        "root.0",
        1,
    )
    assert failed["exception"].endswith("RuntimeError: no luck")


@pytest.mark.parametrize(
    ("target", "message", "cause"),
    [
        ("nowhere:engine", "there is no module 'nowhere'", None),
        ("tests.cli.worker_app:fail", "raised RuntimeError: no engine", "RuntimeError: no engine"),
        ("tests.cli.worker_app:fail_to_connect", "ended by OSError: no network", "OSError: no net"),
    ],
)
def test_json_format_applies_to_errors_that_end_a_worker(
    target: str, message: str, cause: str | None, sqlite: str, tmp_path: Path
) -> None:
    with workers(sqlite, tmp_path, target, "--log-format", "json") as command:
        command.wait_until(lambda: message in command.said())
        command.process.terminate()
        command.end()
    lines = [json.loads(line) for line in command.said().splitlines()]
    failed = next(line for line in lines if message in line["message"])
    assert failed["level"] in ("error", "critical")
    assert ("exception" in failed) is (cause is not None)
    assert cause is None or cause in failed["exception"]


def test_worker_signalled_twice_exits_at_once(sqlite: str, tmp_path: Path) -> None:
    start(sqlite, runs=1, steps=1, seconds=60)
    with workers(sqlite, tmp_path, "tests.cli.worker_app:engine", "--queues", "there") as command:
        command.wait_ready(1)  # it prints that when its runs may have begun already
        command.wait_until(lambda: len(command.lines()) == 1)
        (pid,) = command.ready(1)
        os.kill(pid, signal.SIGTERM)
        time.sleep(0.2)
        os.kill(pid, signal.SIGTERM)
        said = f"(pid {pid}): ended with exit code 143, restarting"
        command.wait_until(lambda: said in command.said())


def test_crashing_workers_restart_with_growing_delays(sqlite: str, tmp_path: Path) -> None:
    with workers(sqlite, tmp_path, "tests.cli.worker_app:crash", "--processes", "3") as command:
        command.wait_until(lambda: "restarting in 2 s" in command.said())
        waits = re.findall(r"killed by SIGKILL, restarting in ([\d.]+) s", command.said())
        assert waits == ["0.5", "1", "2"]
        # No other worker starts while the first has never served.
        assert "worker 2" not in command.said()
        command.process.terminate()
        assert command.end() == 0


def test_workers_stop_when_their_supervisor_is_killed(url: str, tmp_path: Path) -> None:
    start(url, runs=4, steps=worker_app.STEPS, seconds=0.3)
    with workers(
        url, tmp_path, "tests.cli.worker_app:engine", "--processes", "2", "--queues", "there"
    ) as command:
        command.wait_ready(1, 2)
        command.wait_until(lambda: len(command.lines()) >= 6)
        command.process.kill()
        assert command.end() == -signal.SIGKILL
    # They drained: started tasks have ended, and no run has an owner.
    assert doubts(url) == 0


def test_sighup_replaces_workers_one_by_one(sqlite: str, tmp_path: Path) -> None:
    with workers(sqlite, tmp_path, "tests.cli.worker_app:engine", "--processes", "2") as command:
        command.wait_ready(1, 2)
        command.process.send_signal(signal.SIGHUP)
        command.wait_until(lambda: "rolling restart finished" in command.said())
        ready = re.findall(r"worker (\d) \(pid \d+\): (ready|ended .*restarting)", command.said())
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
        (("tests.cli.worker_app:motor",), "pass tests.cli.worker_app:engine"),
        (("tests.cli.worker_app:fail",), "RuntimeError: no engine today"),
        (("tests.cli.worker_app:engine", "--processes", "0"), "--processes is 0: pass at least 1"),
        (("tests.cli.worker_app:engine", "--concurrency", "0"), "concurrency is 0"),
        (("tests.cli.worker_app:engine", "--queues", "a,,b"), "queue"),
        (("tests.cli.worker_app:engine", "--queues", "theer"), "did you mean 'there'?"),
    ],
)
def test_bad_configuration_is_reported_once_without_retry(
    sqlite: str, tmp_path: Path, arguments: tuple[str, ...], text: str
) -> None:
    with workers(sqlite, tmp_path, *arguments) as command:
        assert command.end() == BAD_CONFIG
        assert command.said().count(text) in (1, 2)
        assert command.said().count("started") <= 1


def test_foreign_database_is_not_retried(tmp_path: Path) -> None:
    (tmp_path / "theirs.db").write_bytes(b"not a database at all" * 100)
    with workers(f"sqlite:///{tmp_path}/theirs.db", tmp_path, "tests.cli.worker_app:engine") as it:
        assert it.end() == BAD_CONFIG
        assert "Traceback" not in it.said()


def test_unreachable_store_is_retried(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/later/worker.db"
    with workers(url, tmp_path, "tests.cli.worker_app:engine") as command:
        command.wait_until(lambda: "ended with exit code 1, restarting" in command.said())
        (tmp_path / "later").mkdir()
        command.wait_ready(1)
        command.process.terminate()
        assert command.end() == 0
