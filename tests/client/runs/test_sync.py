"""The engine for sync code, and for programs that users interrupt."""

import asyncio
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import perdure
from perdure import (
    InputError,
    RunCancelled,
    RunStatus,
    Signal,
    SyncEngine,
    task,
    workflow,
)
from perdure.core.errors import EngineClosed, ForeignAwait, InvalidUrl
from perdure.core.journal import events as e
from perdure.store.opening import open_store
from tests.paths import ROOT

word = Signal("word", str)


@task(name="sync.shout")
def shout(said: str) -> str:
    return said.upper()


@workflow(name="sync.shouting")
async def shouting(said: str) -> str:
    return await shout(said)


@workflow(name="sync.listening")
async def listening() -> str:
    perdure.publish("phase", "listening")
    return await word.receive()


@pytest.fixture
def sync_engine(engine_url: str) -> Iterator[SyncEngine]:
    with SyncEngine(engine_url) as engine:
        yield engine
        assert engine.audit().is_clean
        assert engine.verify().is_clean


def test_plain_code_starts_a_run_and_gets_its_result(sync_engine: SyncEngine) -> None:
    assert sync_engine.start(shouting("hello"), key="one").result(60) == "HELLO"
    assert sync_engine.start(shouting("hello"), key="one").result(60) == "HELLO"


def test_plain_code_starts_many_runs(sync_engine: SyncEngine) -> None:
    runs = sync_engine.start_many(shouting(each) for each in "abc")
    assert [run.result(60) for run in runs] == ["A", "B", "C"]


def test_plain_code_signals_a_run_and_reads_what_it_published(sync_engine: SyncEngine) -> None:
    run = sync_engine.handle(sync_engine.start(listening()).run_id)
    assert run.status() is RunStatus.BLOCKED
    assert run.published() == {"phase": "listening"}
    run.signal(word, "hi")
    assert run.result(60) == "hi"


def test_plain_code_cancels_a_run(sync_engine: SyncEngine) -> None:
    run = sync_engine.start(listening())
    run.cancel("enough")
    with pytest.raises(RunCancelled, match="was cancelled: enough"):
        run.result(60)


def test_plain_code_reads_the_events_of_a_run_to_its_end(sync_engine: SyncEngine) -> None:
    run = sync_engine.start(shouting("hello"))
    entries = list(run.events())
    assert isinstance(entries[0].event, e.ExecutionStarted)
    assert isinstance(entries[-1].event, e.ExecutionCompleted)


def test_plain_code_may_stop_reading_events_halfway(sync_engine: SyncEngine) -> None:
    run = sync_engine.start(listening())
    for entry in run.events():
        if isinstance(entry.event, e.ExecutionAwaiting):
            break
    run.signal(word, "go on")
    assert run.result(60) == "go on"


def test_a_timeout_of_plain_code_leaves_the_run_alone(sync_engine: SyncEngine) -> None:
    run = sync_engine.start(listening())
    with pytest.raises(TimeoutError):
        run.result(0.02)
    run.signal(word, "later")
    assert run.result(60) == "later"


def test_an_engine_that_is_closed_leaves_no_thread_and_refuses(engine_url: str) -> None:
    before = threading.active_count()
    with SyncEngine(engine_url) as engine:
        engine.start(listening())
    assert "perdure-engine" not in {thread.name for thread in threading.enumerate()}
    assert threading.active_count() <= before + 1
    with pytest.raises(EngineClosed):
        engine.audit()


def test_an_engine_that_cant_be_opened_leaves_no_thread() -> None:
    with pytest.raises(InvalidUrl), SyncEngine("nonsense://"):
        pass
    assert "perdure-engine" not in {thread.name for thread in threading.enumerate()}


async def test_plain_code_may_run_inside_a_loop_that_is_busy(engine_url: str) -> None:
    assert asyncio.get_running_loop().is_running()
    with SyncEngine(engine_url) as engine:
        assert engine.start(shouting("inside")).result(60) == "INSIDE"


@pytest.mark.parametrize(
    "use",
    [
        lambda engine, _: engine.start(shouting("no")),
        lambda engine, _: engine.start_many([shouting("no")]),
        lambda engine, run: engine.handle(run).status(),
        lambda engine, run: next(engine.handle(run).events()),
        lambda engine, _: engine.transaction().__enter__(),
        lambda engine, _: engine.close(),
    ],
)
def test_an_engine_that_is_used_in_the_thread_of_its_loop_refuses_at_once(
    engine_url: str, use: Callable[[SyncEngine, str], object]
) -> None:
    @task
    async def uses() -> None:
        use(engine, perdure.info().run_id)

    @workflow
    async def waiting_for_itself() -> None:
        await uses()

    with SyncEngine(engine_url) as engine:
        with pytest.raises(InputError, match=r"in the thread of its own loop.*asyncio\.to_thread"):
            engine.start(waiting_for_itself()).result(60)
        assert engine.start(shouting("on"), key="one").result(60) == "ON"
        assert engine.audit().is_clean
        assert engine.verify().is_clean


def test_a_workflow_may_not_use_the_engine_that_it_runs_on(sync_engine: SyncEngine) -> None:
    @workflow(lint="off")
    async def using_its_engine() -> None:
        sync_engine.start(shouting("no"))

    with pytest.raises(ForeignAwait, match=r"uses an engine.*perdure\.start"):
        sync_engine.start(using_its_engine()).result(60)


def test_an_async_task_uses_the_engine_through_a_thread(sync_engine: SyncEngine) -> None:
    @task
    async def through_a_thread() -> str:
        run = await asyncio.to_thread(sync_engine.start, shouting("there"))
        return await asyncio.to_thread(run.result, 10)

    @workflow
    async def going_through_a_thread() -> str:
        return await through_a_thread()

    assert sync_engine.start(going_through_a_thread()).result(60) == "THERE"


def test_run_takes_a_workflow_to_its_end(engine_url: str) -> None:
    assert perdure.run(shouting("script"), store=engine_url) == "SCRIPT"


def test_run_with_a_key_resumes(tmp_path: Path) -> None:
    begun: list[str] = []

    @task
    def once() -> str:
        begun.append("begun")
        return "did it once"

    @workflow
    async def resuming() -> str:
        done = await once()
        await word.receive()
        return done

    url = f"sqlite:///{tmp_path}/script.db"
    with SyncEngine(url) as engine:
        run = engine.start(resuming(), key="script")
        with pytest.raises(TimeoutError):
            run.result(0.2)
        run.signal(word, "go on")
    assert perdure.run(resuming(), store=url, key="script") == "did it once"
    assert begun == ["begun"]


def test_run_raises_what_the_workflow_raised(engine_url: str) -> None:
    @workflow
    async def failing() -> None:
        raise ZeroDivisionError("in the workflow")

    with pytest.raises(ZeroDivisionError, match="in the workflow"):
        perdure.run(failing(), store=engine_url)


# Interrupts

PREAMBLE = """
import asyncio, sys
import perdure
from perdure import Engine, Settings, task, workflow

@task
async def slow(seconds: float) -> str:
    print("began", flush=True)
    await asyncio.sleep(seconds)
    print("ended", flush=True)
    return "slept"

@workflow
async def sleeping(seconds: float) -> str:
    return await slow(seconds)

url, seconds = sys.argv[1], float(sys.argv[2])
settings = Settings(grace=30)
"""

SYNC_PROGRAM = (
    PREAMBLE
    + """
perdure.run(sleeping(seconds), store=url, key="one", settings=settings)
"""
)

ASYNC_PROGRAM = (
    PREAMBLE
    + """
async def main() -> None:
    async with Engine(url, settings=settings) as engine:
        await (await engine.start(sleeping(seconds), key="one")).result()

asyncio.run(main())
"""
)

PROGRAMS = pytest.mark.parametrize("program", [SYNC_PROGRAM, ASYNC_PROGRAM], ids=["sync", "async"])


def _begin(program: str, tmp_path: Path, seconds: float) -> subprocess.Popen[str]:
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(program))
    command = [sys.executable, str(script), f"sqlite:///{tmp_path}/program.db", str(seconds)]
    running = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert running.stdout is not None
    assert running.stdout.readline() == "began\n"
    return running


@PROGRAMS
def test_an_interrupt_lets_the_task_end_and_keeps_its_outcome(program: str, tmp_path: Path) -> None:
    with _begin(program, tmp_path, 0.5) as running:
        running.send_signal(signal.SIGINT)
        said, complaint = running.communicate(timeout=20)
    assert said == "ended\n"
    assert complaint.rstrip().endswith("KeyboardInterrupt")
    assert "Exception in thread" not in complaint
    (completed,) = asyncio.run(_outcomes(f"sqlite:///{tmp_path}/program.db"))
    assert completed.payload == b'"slept"'


async def _outcomes(url: str) -> list[e.InvokeCompleted]:
    store = await open_store(url)
    try:
        entries = [entry async for books in store.books() for entry in books.entries]
    finally:
        await store.close()
    return [each.event for each in entries if isinstance(each.event, e.InvokeCompleted)]


@PROGRAMS
def test_a_second_interrupt_ends_the_program_at_once(program: str, tmp_path: Path) -> None:
    with _begin(program, tmp_path, 60) as running:
        running.send_signal(signal.SIGINT)
        time.sleep(0.5)
        assert running.poll() is None
        began = time.monotonic()
        running.send_signal(signal.SIGINT)
        said, complaint = running.communicate(timeout=30)
    assert time.monotonic() - began < 30
    assert said == ""
    assert complaint.count("Traceback") == 1
    assert running.returncode != 0
